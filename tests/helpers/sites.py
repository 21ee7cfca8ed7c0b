"""Feeds on hosts, a blocklist, and a crawl judged by the log of its servers."""

import json
import sqlite3
from contextlib import closing

from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site

LIST_URL = "http://operator.example/blocklist.json"


#: The document of the contract, without an entry.
BLOCKLIST = {
    "contract": "walsh-research-blocklist/v1",
    "updated": "2026-05-23T00:00:00Z",
    "operator": "Jason Walsh",
    "contact": "j@wal.sh",
    "policy": "https://wal.sh/bot/",
    "refresh": "PT6H",
    "blocked": [],
}


def feed(title="Feed", posts=("One", "Two"), *, host="blog.example", **reply):
    return Reply(rss(title, posts, f"http://{host}/"), content_type="application/rss+xml", **reply)


def site(host, robots="", **pages):
    """A host with a feed at /feed, and at every other path that is given."""
    given = {f"/{name}": page for name, page in pages.items()}
    return Site(host, robots, {"/feed": feed(host=host.partition(":")[0])} | given)


def feeds(*names, path="feed"):
    """The URLs of the feeds of NAME.example."""
    return [f"http://{name}.example/{path}" for name in names]


def in_turn(host, names):
    """Names of pages in the order in which new sources of a host are visited."""
    return sorted(names, key=lambda name: url_key(f"http://{host}/{name}"))


def blocklist(*domains, delay=0.0, **fields):
    blocked = [{"domain": name, "added": "2026-05-23", "reason": "email"} for name in domains]
    document = BLOCKLIST | {"blocked": blocked} | fields
    return Reply(json.dumps(document), content_type="application/json", delay=delay)


def paths(log, host=None):
    """The requests of a log in their order, as host/path."""
    return [f"{hit.host}{hit.path}" for hit in log if host in (None, hit.host)]


def judge(served, **terms):
    """Judge requests and connections: of one crawl, or of a web and so of all its crawls."""
    assert_polite(served.log, connections=served.connections, **terms)


def trouble(name):
    """The settings of a crawl with an extension of `tests.helpers.problems`."""
    return {"EXTENSIONS": json.dumps({f"tests.helpers.problems.{name}": 0})}


def critical_line(result):
    """The one line of a run that ended early by trouble of ours, with exit status 1."""
    assert result.exit_code == 1
    for word in ("Traceback", "Exception ignored", "never retrieved"):
        assert word not in result.stderr, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if " CRITICAL " in line]
    return line


def refusal(result):
    """What a crawl that did not start says, without a request and without a traceback."""
    assert result.exit_code not in (0, -9)
    assert result.log == []
    assert "Traceback" not in result.stderr
    assert result.stderr.count("walsh-scrapy: ") == 1
    return result.stderr.partition("walsh-scrapy: ")[2]


def rows_of(crawl, statement, parameters=()):
    """Execute a statement on the state of a crawl or of a folder, and return its rows."""
    folder = getattr(crawl, "folder", crawl)
    if not (folder / "walsh.sqlite3").exists():  # the folder of one run, beside the state
        folder = folder.parent
    with closing(sqlite3.connect(folder / "walsh.sqlite3")) as state, state:
        return state.execute(statement, parameters).fetchall()


def log_lines(run, *words):
    """The lines that a crawl or a command logged and that contain all of these words."""
    return [line for line in run.stderr.splitlines() if all(word in line for word in words)]


def blamed_hosts(crawl):
    """The hosts in the state of a crawl that have failures, or are on hold."""
    blamed = "refusals OR unreachable OR server_errors OR hold_until"
    return [host for (host,) in rows_of(crawl, f"SELECT host FROM hosts WHERE {blamed}")]


def hosts_in_flight(crawl):
    """The hosts in the state of a crawl to which a request has not ended."""
    return [host for (host,) in rows_of(crawl, "SELECT host FROM hosts WHERE in_flight_until > 0")]


#: The identity of another project's bot, whose spiders may follow links.
AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)"
IDENTITY = {"WALSH_USER_AGENT": AGENT, "WALSH_UA_TOKEN": "Example-Bot"}
ADDON = {"ADDONS": {"walsh_scrapy.Addon": 500}}
#: For a project's own crawl, whose handler is Scrapy's unless it chooses another.
OUR_HANDLER = {
    "DOWNLOAD_HANDLERS": dict.fromkeys(
        ("http", "https"), "walsh_scrapy.downloadhandler.DownloadHandler"
    )
}


def write_project(folder, settings, *lines, **modules):
    """Write a Scrapy project with a package `theirs` of these modules; return its folder.

    Its settings are a text, or by their names, with more lines.
    """
    if not isinstance(settings, str):
        given = {"SPIDER_MODULES": ["theirs.spiders"]} | settings
        settings = "\n".join([*(f"{name} = {value!r}" for name, value in given.items()), *lines])
    (folder / "theirs").mkdir(parents=True, exist_ok=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = theirs.settings\n")
    for name, text in (modules | {"__init__": "", "settings": settings}).items():
        (folder / "theirs" / f"{name}.py").write_text(text)
    return folder
