"""`walsh forget`: what is deleted of a source or a host, and what stays, on both databases."""

import contextlib
import json
from functools import partial

import pytest
from sqlalchemy import func, select

from tests.helpers.records import commit, entry_of
from tests.helpers.sites import feed, site
from walsh_scrapy.policy.entrykeys import EntryKeys
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.tables import copies, entries, hosts, requests, robots, sources
from walsh_scrapy.testing.site import redirect

DAY = 86_400.0
HOST = "gone.example"
URL = f"http://{HOST}/feed"
OTHER = "http://other.example/feed"


@pytest.fixture
def web(simulated, url, tmp_path):
    """Crawl two sources for two days, after which another sources file counts."""

    def crawl(*sites, listed=(URL, OTHER), **options):
        settings = {"WALSH_STATE_URL": url}
        simulated(*sites, sources=list(listed), settings=settings, **options)
        for file in tmp_path.rglob("simulation/*/sources.toml"):
            file.unlink()

    return crawl


@pytest.fixture
def forget(url, called, tmp_path):
    (tmp_path / "sources.toml").write_text(f'[[source]]\nurl = "{OTHER}"\n')
    return partial(called, "forget", WALSH_STATE_URL=url)


@contextlib.contextmanager
def opened(url):
    with contextlib.closing(State(url)) as state:
        yield state, state.database.all


@pytest.fixture
def state(url):
    with contextlib.closing(State(url)) as state:
        yield state


def texts(url):
    """All texts and documents of the state."""
    with opened(url) as (_, rows):
        tables = (requests, entries, sources, robots, copies)
        return "".join(str(row) for table in tables for row in rows(select(table)))


def pages(host, *posts):
    return site(
        host, "User-agent: *\nDisallow: /private-" + host, feed=feed(posts=posts, host=host)
    )


@pytest.mark.parametrize("target", [HOST, URL])
def test_nothing_of_a_source_stays_but_the_keys_of_its_entries(web, forget, called, url, target):
    web(pages(HOST, "Secret"), pages("other.example", "Open"), starts=[0.0, 2 * DAY])
    with opened(url) as (_, rows):
        keys = set(rows(select(entries.c.key)))
        paced = rows(select(hosts.c.host, hosts.c.request_ended_at))
    status, out, error = forget(target, "--because", "mail of 3 May")
    assert (status, error) == (0, "")
    assert "1 entry, 1 source" in out
    with opened(url) as (state, rows):
        assert set(rows(select(entries.c.key))) == keys
        assert rows(select(hosts.c.host, hosts.c.request_ended_at)) == paced
        (override,) = state.rows("readable_overrides")
        assert (override["override"], override["reason"]) == ("forget", "mail of 3 May")
        assert override["requests"] > 0
        left = rows(select(requests.c.url).where(requests.c.host == HOST))
        stay = set() if target == HOST else {f"http://{HOST}/robots.txt"}
        assert {row.url for row in left} == stay
        assert [row["title"] for row in state.rows("readable_entries")] == ["Open"]
    kept = texts(url)
    assert "Secret" not in kept
    assert ("private-gone" in kept) == (target == URL)
    assert "private-other" in kept
    exported = called("export", "-o", "-", WALSH_STATE_URL=url)[1]
    assert [json.loads(line)["title"] for line in exported.splitlines()] == ["Open"]
    assert "deleted" in called("why", HOST, WALSH_STATE_URL=url)[1]
    audit = called("attest", "--json", WALSH_STATE_URL=url)
    assert audit[0] == 0
    first = json.loads(audit[1].splitlines()[0])
    assert first["not_shown"] == {
        "was deleted by the operator (walsh forget)": override["requests"]
    }


def test_no_other_source_brings_a_forgotten_entry_back(state, url, forget):
    def entry(source, title):
        item = json.dumps({"kind": "feed", "source": source, "title": title, "url": f"{URL}/1"})
        return entry_of(source, item=item, keys=EntryKeys("page", title="t"))

    commit(state, SourceRecord(url=URL, kind="feed"), [entry(URL, "Secret")])
    assert forget(HOST)[0] == 0
    assert commit(state, SourceRecord(url=OTHER, kind="feed"), [entry(OTHER, "Secret")]) == []
    assert list(state.rows("readable_entries")) == []


def test_an_entry_is_forgotten_with_the_host_that_it_links_to(state, forget):
    items = {
        "a": f"http://{HOST.upper()}/1", "b": f"http://{HOST}.other.example/1", "c": "http://x.example/1"
    }  # fmt: skip
    stored = [
        entry_of(OTHER, key, item=json.dumps({"title": f"{key} {HOST}", "url": link}))
        for key, link in items.items()
    ]
    commit(state, SourceRecord(url=OTHER, kind="feed"), stored)
    assert "1 entry, 0 sources" in forget(HOST)[1]
    left = state.rows("readable_entries", columns="url", order_by="url")
    assert [row["url"] for row in left] == [items["b"], items["c"]]


def test_a_redirect_through_a_forgotten_host_leaves_no_breach(web, forget, called, url):
    web(
        site("other.example", feed=redirect(f"http://{HOST}/middle", 302)),
        site(HOST, middle=redirect("http://end.example/feed", 302)),
        pages("end.example", "Open"),
        listed=[OTHER],
        starts=[0.0],
    )
    assert forget(HOST, "--because", "mail of 3 May")[0] == 0
    with opened(url) as (_, rows):
        left = {row.url for row in rows(select(requests.c.url))}
    assert {OTHER, f"http://{HOST}/middle", "http://end.example/feed"} & left == {OTHER}
    assert called("attest", WALSH_STATE_URL=url)[0] == 0
    with opened(url) as (state, _):
        overrides = list(state.rows("readable_overrides", order_by="id"))
    assert [(row["host"], row["reason"]) for row in overrides] == [
        *((HOST, "mail of 3 May"), ("end.example", None))
    ]
    status, out, _ = called("why", "end.example", "--since", "2026-01-01", WALSH_STATE_URL=url)
    assert status == 0
    assert f"We deleted {overrides[1]['requests']} request" in out
    assert HOST not in out


def test_a_declared_source_is_refused_with_its_file(web, forget, url, tmp_path):
    web(pages("other.example", "Open"), listed=[OTHER], starts=[0.0])
    for target in (OTHER, "other.example"):
        status, out, error = forget(target)
        assert (status, out, error.count("\n")) == (3, "", 1)
        assert f"{OTHER} is declared in {tmp_path / 'sources.toml'}" in error
    with opened(url) as (state, rows):
        assert rows(select(func.count()).select_from(entries)) == [(1,)]
        assert list(state.rows("readable_overrides")) == []


def test_a_host_is_known_in_each_spelling(state, called, url, tmp_path):
    source = "http://B\u00fccher.example/feed"
    commit(state, SourceRecord(url=source, kind="feed"), [entry_of(source)])
    file = tmp_path / "sources.toml"
    file.write_text(f'[[source]]\nurl = "{source}"\n', "utf-8")
    assert called("forget", "xn--bcher-kva.example", WALSH_STATE_URL=url)[0] == 3
    file.write_text(f'[[source]]\nurl = "{OTHER}"\n')
    assert "1 entry" in called("forget", "xn--bcher-kva.example", WALSH_STATE_URL=url)[1]


def test_a_host_that_a_crawl_uses_is_refused(state, url, forget):
    commit(state, SourceRecord(url=URL, kind="feed"), [entry_of(URL)])
    now = state.now()

    def own(connection):
        connection.exec_driver_sql(
            f"INSERT INTO workers (id, started_at, expires_at) VALUES ('us', {now}, {now + 60})"
        )
        connection.exec_driver_sql(f"INSERT INTO hosts (host, owner) VALUES ('{HOST}', 'us')")

    state.write(own)
    status, _, error = forget(HOST)
    assert (status, f"a crawl uses {HOST} now" in error) == (3, True)
    state.write(lambda connection: connection.exec_driver_sql("DELETE FROM workers"))
    assert forget(HOST)[0] == 0


@pytest.mark.parametrize("target", ["http://never.example/feed", "never.example"])
def test_what_is_not_recorded_is_a_failure_and_leaves_no_row(state, forget, target):
    status, out, error = forget(target)
    assert (status, out) == (1, "")
    assert f"nothing is recorded of {target}" in error
    assert ("walsh forget never.example" in error.replace("python -m walsh_scrapy", "walsh")) == (
        "://" in target
    )
    assert list(state.rows("readable_overrides")) == []


def test_a_domain_that_is_paced_forgets_only_the_named_host(state, called, url):
    for name in ("a", "b"):
        source = f"http://{name}.gone.example/feed"
        commit(state, SourceRecord(url=source, kind="feed"), [entry_of(source, name)])
    settings = {"WALSH_STATE_URL": url, "WALSH_PACE_BY": "domain"}
    assert called("forget", "a.gone.example", **settings)[0] == 0
    left = state.rows("readable_entries", columns="source")
    assert [row["source"] for row in left] == ["http://b.gone.example/feed"]
