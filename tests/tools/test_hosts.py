"""`walsh hosts`: the hosts that wait, and why; every command says the same of it."""

import json

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.web import Reply

BUSY = "http://busy.example/feed"


def test_hold_of_a_year_is_shown_by_all_commands_and_released(
    direct_web, crawl, on_state, tmp_path
):
    year = Reply(status=429, headers={"Retry-After": "31536000"})
    web = direct_web(
        site("busy.example", feed=[year, feed(host="busy.example")]), site("blog.example")
    )
    sources = [BUSY, "http://blog.example/feed"]
    (tmp_path / "sources.txt").write_text("".join(f"{source}\n" for source in sources))
    crawl(web, sources=sources)
    busy = json.loads(on_state("hosts", "--json").stdout.splitlines()[0])
    assert (busy["host"], busy["problem"], busy["refusals"]) == ("busy.example", "hold", 1)
    assert "365 d" in busy["reason"]
    assert (busy["hold_by"], busy["hold_status"]) == ("retry-after", 429)
    held = f"busy.example is on hold until {busy['hold_until'].replace('T', ' ')[:-1]} UTC"

    source = json.loads(on_state("sources", BUSY, "--json").stdout)
    assert (source["is_due"], source["next_visit"]) == (True, busy["hold_until"])
    assert busy["hold_until"] in on_state("sources", "resume", BUSY).stdout
    answer = on_state("mayfetch", "--offline", BUSY)
    assert answer.stdout.startswith(f"{BUSY}: allowed, but {held}\n")

    again = crawl(web, sources=sources, arguments={"force": "1"})
    assert paths(again.log, "busy.example") == []
    released = on_state("hosts", "release", BUSY, "--because", "they wrote: go on")
    assert released.returncode == 0
    assert "364 d 23 h" in released.stdout
    last = crawl(web, sources=sources)
    assert paths(last.log, "busy.example") == ["busy.example/feed"]
    assert len(last.items) == 2
    kept = rows_of(tmp_path / "crawl", "SELECT host, override, reason FROM overrides")
    assert kept == [("busy.example", "release", "they wrote: go on")]


def test_operator_delay_outlives_runs_and_needs_no_crawl_first(on_state):
    set_to = on_state("hosts", "delay", "Blog.Example.", "PT2H", "--because", "a relaunch")
    assert "blog.example" in set_to.stderr
    assert on_state("hosts", "delay", "blog.example", "2h").stderr == "", "it is known by now"
    assert on_state("hosts", "delay", "blog.example", "7200").stdout == set_to.stdout
    assert "every 2 h" in set_to.stdout
    (row,) = map(json.loads, on_state("hosts", "--json").stdout.splitlines())
    assert (row["host"], row["operator_delay"], row["problem"]) == ("blog.example", 7200.0, None)
    assert (
        "may be for robots.txt"
        in on_state("hosts", "delay", "blog.example", "1d", "--because", "a relaunch").stdout
    )
    (row,) = map(json.loads, on_state("hosts", "--json").stdout.splitlines())
    assert (row["last_override"], row["last_override_reason"]) == ("delay", "a relaunch")
    assert on_state("hosts", "delay", "blog.example", "0").returncode == 0
    assert on_state("hosts", "--json").stdout == ""


# `walsh backup`: a copy of the state in a new file, from which a crawl goes on.


def test_crawl_from_a_backup_repeats_no_request_and_reports_it(
    loopback_web, crawl, on_state, tmp_path
):
    """Nothing is due at first, and a forced visit has the validators of the state it came from."""
    visited = loopback_web(site("blog.example", feed=feed(etag='"1"')))
    crawl(visited, sources=["http://blog.example/feed"])
    file = tmp_path / "new" / "walsh.sqlite3"
    made = on_state("backup", "-o", file)
    assert made.returncode == 0
    assert made.stderr.endswith(f" {file}\n")
    assert [path.name for path in file.parent.iterdir()] == ["walsh.sqlite3"]
    given = {"sources": ["http://blog.example/feed"]}
    given["settings"] = {"WALSH_STATE_URL": f"sqlite:///{file}"}
    again = crawl(visited, **given)
    assert again.log == []
    assert again.stderr.count("another file") == 1
    forced = crawl(visited, **given, arguments={"force": "1"})
    assert [(hit.path, hit.status) for hit in forced.log] == [("/feed", 304)]
    assert "another file" not in forced.stderr


def test_a_copy_is_offered_to_files_only(run_command):
    """A database cannot be a stream."""
    for arguments in (("--help",), ("-o", "-"), ()):
        ended = run_command("walsh", "backup", *arguments)
        assert "standard output" not in ended.stdout + ended.stderr
    assert (
        run_command("walsh", "backup", "-o", "-").returncode,
        run_command("walsh", "backup").returncode,
    ) == (2, 2)
