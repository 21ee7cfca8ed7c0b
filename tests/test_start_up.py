"""What each command does not import, because it does not need it: most of a start is imports.

Each command runs in a process of its own, which says at its end what it has imported.
"""

import sys

import pytest

from tests.helpers import ROOT, execute
from tests.helpers.sites import ADDON, write_project
from walsh_scrapy.console.commands import COMMANDS
from walsh_scrapy.testing.crawl import (
    join_environments,
    keep_empty_blocklist,
    write_sources,
)
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.site import Reply, Site

CALLING = """
import sys
written, program, *arguments = sys.argv[1:]
try:
    if program == "walsh":
        from walsh_scrapy.console import main
        main(arguments)
    else:
        from scrapy.cmdline import execute
        execute([program, *arguments])
finally:
    with open(written, "w") as file:
        print(*sys.modules, file=file)
"""

#: What no program for owners of sites needs.
LARGE = {"aiohttp", "cryptography", "lxml", "rich.console", "scrapy", "sqlalchemy", "twisted"}
#: What only some documents, settings, states and commands need.
RARE = {
    "feedparser",  # a feed
    "jinja2",  # walsh report
    "jsonschema",  # an item or a blocklist that is not clearly valid
    "markdown_it",  # a document of markdown
    "psycopg",  # a state in PostgreSQL
    "pytest",  # walsh_scrapy.testing.plugin
    "publicsuffixlist",  # WALSH_PACE_BY = "domain"
    "sqlalchemy.dialects.postgresql",  # a state in PostgreSQL
    "trustme",  # walsh conformance
    "walsh_scrapy.feeds.sources.opml",  # sources in OPML
}
#: What Scrapy imports in order to learn that it is switched off.
SWITCHED_OFF = {
    "scrapy.downloadermiddlewares.cookies",
    "scrapy.extensions.remote_control",
    "scrapy.extensions.telnet",
    "scrapy.extensions.throttle",
}
#: What only those commands need that may send requests.
CRAWLING = {"fastjsonschema", "h11", "walsh_scrapy.addon", "walsh_scrapy.downloadhandler"}
#: What only those commands need that say something of this project.
OURS = {
    "rich.console",
    "sqlalchemy",
    "walsh_scrapy.options",
    "walsh_scrapy.crawl",
    "walsh_scrapy.state",
    "walsh_scrapy.extensions.summary",
}

#: What a command prints when it has done its work, and what it must not import.
CALLS = {
    "walsh --version": ("walsh-scrapy", LARGE | RARE),
    "walsh --help": ("every day", LARGE | RARE),
    "walsh status --help": ("exit status", LARGE | RARE),
    "walsh export --help": ("exit status", LARGE | RARE),
    "walsh conformance --help": ("exit status", LARGE | RARE),
    "walsh init project": ("scrapy crawl feeds", LARGE | RARE),
    "walsh lint robots.txt": ("0 errors", LARGE | RARE | {"protego"}),
    "walsh mayfetch --robots robots.txt https://a.example/x": ("denied", LARGE | RARE),
    "scrapy version": ("Scrapy ", RARE | SWITCHED_OFF | CRAWLING | OURS),
    "scrapy crawl feeds": ("run finished", RARE | SWITCHED_OFF),
    "scrapy crawl llms": ("run finished", RARE | SWITCHED_OFF),
    "walsh mayfetch --offline https://a.example/feed": ("robots", RARE | SWITCHED_OFF),
    "walsh status": ("severity", RARE | SWITCHED_OFF | CRAWLING | {"rich.console"}),
    "walsh sources": ("http://127.0.0.1:9/feed", RARE | SWITCHED_OFF | CRAWLING),
    "walsh why 127.0.0.1": ("What comes next", RARE | SWITCHED_OFF | CRAWLING | {"rich.console"}),
}


@pytest.fixture(scope="module")
def imported_by(tmp_path_factory):
    """Return a function that runs a command; it returns what was imported, and what was printed.

    The state has a blocklist in force, and a visit of the one source that is declared: nobody
    listens at its address.
    """
    folder = tmp_path_factory.mktemp("start")
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /x\n")
    sources = write_sources(folder / "sources.toml", ["http://127.0.0.1:9/feed"])
    state = f"sqlite:///{folder / 'walsh.sqlite3'}"
    keep_empty_blocklist(state)
    settings = ["-s", f"WALSH_STATE_URL={state}", "-s", f"WALSH_SOURCES={sources}"]

    def run(call):
        name = call.split()[1]
        has_settings = name in COMMANDS and COMMANDS[name].has_settings and "--robots" not in call
        in_project = has_settings or call.startswith("scrapy")
        command = call.split() + settings * in_project
        written = folder / "imported"
        environment = {"PYTHONPATH": str(ROOT)}
        if in_project:
            environment["SCRAPY_SETTINGS_MODULE"] = "walsh_scrapy.settings"
        done = execute(
            sys.executable, "-c", CALLING, written, *command, cwd=folder, env=environment
        )
        assert "Traceback" not in done.stderr, done.stderr
        return set(written.read_text().split()), done.stdout + done.stderr

    _, said = run("scrapy crawl feeds")
    assert "1 failing" in said
    return run


@pytest.mark.parametrize("call", CALLS)
def test_a_command_imports_nothing_that_it_does_not_need(imported_by, call):
    words, unused = CALLS[call]
    imported, said = imported_by(call)
    assert words in said
    assert imported & unused == set()


# A crawl needs no extra, as it imports none; a command says which extra it lacks.

HIDING = """
import sys
sys.modules[sys.argv[1]] = None
from walsh_scrapy.console import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("module", "extra", "status", "arguments"),
    [
        ("jinja2", "report", 2, ["report", "-o", "-"]),
        ("trustme", "testing", 2, ["conformance", "--json"]),
        ("psycopg", "postgres", 3, ["hosts"]),
    ],
)
def test_a_missing_extra_is_named_with_its_install_command(module, extra, status, arguments):
    state = "postgresql+psycopg://u@127.0.0.1:9/x" if module == "psycopg" else "sqlite:////no/x"
    settings = ["-s", f"WALSH_STATE_URL={state}", "-s", "WALSH_BLOCKLIST_URL=http://127.0.0.1:9/"]
    rest = ["--", "true"] if arguments[0] == "conformance" else settings
    command = [sys.executable, "-c", HIDING, module, *arguments, *rest]
    done = execute(*command, cwd=ROOT)
    assert done.returncode == status, done.stderr
    assert f"{module}: pip install 'walsh-scrapy[{extra}]'\n" in done.stderr
    assert "Traceback" not in done.stderr


#: What a project's own crawl does not need.
OF_DECLARED_CRAWLS = {
    "feedparser",
    "h11",
    "jsonschema",
    "markdown_it",
    "walsh_scrapy.feeds",
    "walsh_scrapy.tools",
    "walsh_scrapy.wire.connections",
    "walsh_scrapy.wire.http1",
}
OWN_SPIDER = """
from scrapy import Spider

class Links(Spider):
    name = "links"
    start_urls = ["http://a.example/"]

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a", callback=self.parse)
"""


def test_an_own_crawl_imports_nothing_of_the_feed_crawler(tmp_path):
    settings = ADDON | {"USER_AGENT": "Example-Bot/1.0 (+https://bot.example/)"}
    project = write_project(tmp_path / "own", settings, spiders=OWN_SPIDER)
    page = Reply("<a href='/1'>1</a>", content_type="text/html")
    site = Site("a.example", "User-agent: *\nCrawl-delay: 1\n", {"/": page, "/1": page})
    written = tmp_path / "imported"
    command = [sys.executable, "-c", CALLING, written, "scrapy", "crawl", "links"]
    with DirectWeb(site) as web:
        environment = join_environments(web.environment, {"PYTHONPATH": str(ROOT)})
        done = execute(*command, cwd=project, env=environment)
        assert [hit.path for hit in web.log] == ["/robots.txt", "/", "/1"], done.stderr
    imported = set(written.read_text().split())
    assert "walsh_scrapy.crawl.parts" in imported
    assert imported & OF_DECLARED_CRAWLS == set()
    assert [name for name in imported if name.startswith("walsh_scrapy.feeds")] == []
