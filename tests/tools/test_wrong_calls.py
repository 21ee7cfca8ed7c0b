"""A wrong call, or a file that cannot be used, is one line on standard error, and asks nobody."""

import shlex

import pytest

from walsh_scrapy.testing.crawl import write_sources

#: As typed after `scrapy`, with the exit status and words of the line.
CALLS = [
    ("backup", 2, "give one file"),
    ("backup -o -", 2, "needs a file: -o FILE"),
    ("backup -o a.sqlite3", 1, "there is no state at sqlite:///"),
    ("crawl feed", 2, "there is no spider 'feed'; did you mean feeds?"),
    ("crawl nosuch", 2, "there is no spider 'nosuch'; there is feeds, llms"),
    ("crawl feeds -s SPIDER_MODULES=nosuch.a", 2, "no module nosuch.a here; walsh init FOLDER"),
    ("discover", 2, "arguments are required: URL; see scrapy discover --help"),
    ("discover docs.example", 2, "begin it with https://"),
    ("discover http://docs.example/ ftp://docs.example/", 2, "not http or https"),
    ("discover http://user:secret@docs.example/", 2, "password, which is never sent"),
    ("discover --nosuch http://docs.example/", 2, "--nosuch"),
    ("discover http://docs.example/ -s WALSH_MIN_INTERVAL=0", 2, "WALSH_MIN_INTERVAL"),
    ("discover http://docs.example/ -s ADDONS={}", 2, "the gates are switched off"),
    ("export", 2, "give one file"),
    ("export -O ./crawl/../a.opml --sources a.opml", 2, "a.opml is a file of this project"),
    ("report -O a.html -s WALSH_BLOCKLIST_FILE=a.html", 2, "a.html is a file of this project"),
    ("export -o a.json -O b.json", 2, "give one file"),
    ("export -o entries.txt", 2, "entries.txt: the ending of the file has to be one of .jsonl"),
    ("export -o entries", 2, "unless --format names the format"),
    ("export -o - --since tomorrow", 2, "--since: 'tomorrow' is not a day"),
    ("export -o a.opml --since P1D", 2, "--since selects entries"),
    ("export -o - spare", 2, "spare"),
    ("export -o -", 1, "there is no state at sqlite:///"),
    ("export -o - -s WALSH_STATE_URL=nonsense", 1, "WALSH_STATE_URL"),
    (f"export -o {'x' * 300}.opml", 1, "cannot be written: File name too long"),
    ("export -o a.opml --sources /dev/zero", 1, "/dev/zero: it is a pipe or a device"),
    ("export -o a.opml --sources nowhere.toml", 1, "there is no such file"),
    ("export -o - --format opml --source http://a.exmple/", 1, "did you mean"),
    ("hosts release busy.example", 2, "--because"),
    ("hosts release busy.example --because ' '", 2, "--because"),
    ("hosts release busy.example --because 'a\nb'", 2, "one line"),
    ("hosts release busy.example --because x", 1, "busy.example is not on hold"),
    ("hosts pause busy.example", 2, "required: DURATION; see scrapy hosts pause --help"),
    ("hosts pause busy.example -1", 2, "-1"),
    ("hosts pause busy.example inf", 2, "seconds"),
    ("hosts pause busy.example '2 hours'", 2, "pause blog.example 2h"),
    ("hosts pause '' 1", 2, "is not a host"),
    ("hosts --because x", 2, "invalid choice: 'x'"),
    ("hosts forget busy.example", 2, "invalid choice: 'forget'"),
    ("hosts --nope", 2, "--nope"),
    ("keys new a b", 2, "keys does not take b"),
    ("keys directory --headers --days 401", 2, "401 is no number of days from 1 to 400"),
    ("keys x", 2, "x"),
    ("mayfetch", 2, "arguments are required: URL"),
    ("mayfetch --user-agent GPTBot http://a.example/", 2, "goes with --robots FILE"),
    ("mayfetch --robots /nowhere/robots.txt http://a.example/", 2, "/nowhere/robots.txt"),
    ("mayfetch --robots /dev/zero http://a.example/", 2, "has more than 16777216 bytes"),
    ("mayfetch -s WALSH_MIN_INTERVAL=0 --offline http://a.example/", 2, "WALSH_MIN_INTERVAL"),
    ("report", 2, "give one file"),
    ("report -o a.html -O b.html", 2, "give one file"),
    ("report -o - --since soon", 2, "--since: 'soon' is not"),
    ("report -o - extra", 2, "does not take extra"),
    ("report -o -", 1, "there is no state at"),
    ("sources resume", 2, "required: URL; see scrapy sources resume --help"),
    ("sources resume http://a.exmple/", 1, "not a source, declared or in the state; did you mean"),
    ("export -o a.opml --no-backfill", 2, "--no-backfill selects entries"),
    ("sources show", 2, "required: URL"),
    ("sources drop http://a.example/", 2, "invalid choice: 'drop'"),
    ("sources sync http://a.example/", 2, "does not take http://a.example/"),
    ("sources sync --json", 2, "there is no option --json"),
    ("sources --json sync", 2, "--json belongs to the list and to `show`"),
    ("sources --stale 3d sync", 2, "--stale belongs to the list, not to `sync`"),
    ("sources --failing soon", 2, "--failing: 'soon' is not a duration"),
    ("sources show http://a.exmple/", 1, "not a source, declared or in the state; did you mean"),
    ("sources add ftp://a.example/", 1, "not http or https"),
    ("sources --stale '1 month'", 2, "write for example 90d"),
    ("sources --jsn", 2, "no option --jsn"),
    ("sources -a sources=x.toml", 2, "the sources file is --sources FILE here"),
    ("sources -s WALSH_MIN_INTERVAL=0", 1, "WALSH_MIN_INTERVAL"),
    ("sources -s WALSH_STATE_URL=nonsense", 1, "WALSH_STATE_URL"),
    ("sources --sources nowhere.toml", 1, "nowhere.toml: there is no such file"),
]


@pytest.mark.parametrize(("call", "status", "words"), CALLS, ids=[call for call, *_ in CALLS])
def test_a_wrong_call_is_one_line(loopback_web, on_state, tmp_path, call, status, words):
    write_sources(tmp_path / "sources.txt", ["http://a.example/"])
    web = loopback_web()
    ended = on_state(*shlex.split(call), environment=web.environment)
    assert (ended.returncode, ended.stdout) == (status, ""), ended.stderr
    (line,) = ended.stderr.splitlines()
    assert words in line
    assert "secret" not in line
    assert web.log == []


def test_a_file_of_the_project_is_never_replaced(on_state, tmp_path):
    write_sources(tmp_path / "sources.txt", ["http://a.example/"])
    (tmp_path / "link.db").symlink_to("crawl/walsh.sqlite3")
    for call in (
        "export -O crawl/walsh.sqlite3",
        "export -O link.db",
        "export -o crawl/walsh.sqlite3-wal --format csv",
        "backup -O crawl/../sources.txt",
    ):
        command, option, name, *others = call.split()
        ended = on_state(command, option, tmp_path / name, *others)
        assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
        assert ended.stderr.endswith(f"{name} is a file of this project; name another one\n")
    assert (tmp_path / "sources.txt").read_text() == "http://a.example/\n"


@pytest.mark.parametrize("call", ["export -o a.jsonl", "hosts", "report -o -", "sources", "new"])
def test_a_damaged_state_is_one_line_and_stays_as_it_is(on_state, tmp_path, call):
    write_sources(tmp_path / "sources.txt", ["http://a.example/"])
    file = tmp_path / "crawl" / "walsh.sqlite3"
    file.parent.mkdir()
    file.write_bytes(b"no database" * 500)
    ended = on_state(*shlex.split(call))
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "cannot be used as state" in line
    assert file.read_bytes() == b"no database" * 500
