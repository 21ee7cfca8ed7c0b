"""Two bots on one state: a crawl names the other one, unless one project declares both."""

import re
from contextlib import closing

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from tests.helpers.pages import page_of
from tests.helpers.sites import ADDON, IDENTITY, feeds, log_lines, site, write_project
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State
from walsh_scrapy.state.runstore import RunRecord

OTHER = {
    "WALSH_USER_AGENT": "Other-Bot/2.0 (+https://other.example/)",
    "WALSH_UA_TOKEN": "Other-Bot",
}
SPIDERS = """
from walsh_scrapy.feeds.spiders import FeedsSpider


class One(FeedsSpider):
    name = "one"


class Two(FeedsSpider):
    name = "two"
    custom_settings = {"WALSH_USER_AGENT": "Two-Bot/1.0 (+https://two.example/)",
                       "WALSH_UA_TOKEN": "Two-Bot"}


class Three(FeedsSpider):
    name = "three"
    user_agent = "Firefox/140"
    custom_settings = {"WALSH_USER_AGENT": "", "WALSH_UA_TOKEN": ""}
"""


@pytest.fixture
def run(loopback_web, crawl):
    """Crawl a feed, and return the warnings that name another bot."""
    web = loopback_web(site("blog.example"))

    def run_spider(spider="feeds", settings=(), **options):
        values = {"WALSH_BLOCKLIST_URL": ""} | dict(settings)
        result = crawl(web, spider, sources=feeds("blog"), settings=values, **options)
        assert result.exit_code == 0, result.stderr
        return log_lines(result, "WARNING", "another bot uses the state")

    return run_spider


def test_a_crawl_names_the_other_bot_of_its_state(run):
    assert run(settings=OTHER) == []
    (line,) = run(settings=IDENTITY)
    assert "Other-Bot (its last crawl began at 20" in line
    assert "walsh.sqlite3" in line
    assert run(settings=IDENTITY) == [], "nobody else crawled since"
    (line,) = run(settings=OTHER)
    assert "Example-Bot" in line


def test_a_new_version_is_no_other_bot(run):
    assert run(settings=OTHER) == []
    newer = OTHER["WALSH_USER_AGENT"].replace("2.0", "2.1")
    assert run(settings=OTHER | {"WALSH_USER_AGENT": newer}) == []


def test_bots_of_one_project_are_no_accident(run, tmp_path, installed):
    project = write_project(tmp_path / "project", ADDON | IDENTITY, spiders=SPIDERS)
    assert run("one", project=project) == []
    assert run("two", project=project) == []
    assert run("one", project=project) == []
    (line,) = run(settings=OTHER)
    assert "Example-Bot" in line
    assert "Two-Bot" in line
    (line,) = run("two", project=project)
    assert "Other-Bot" in line
    assert "Example-Bot" not in line


def test_the_schemas_of_the_docs_are_two_states(postgresql_url):
    page = page_of("deployment.md")
    (schema,) = re.findall(r"`CREATE SCHEMA (\w+) AUTHORIZATION", page)
    (query,) = re.findall(r"^WALSH_STATE_URL = postgresql\S+/walsh\?(\S+)$", page, re.MULTILINE)
    with create_engine(postgresql_url, poolclass=NullPool).begin() as connection:
        connection.execute(CreateSchema(schema))
    urls = (postgresql_url, f"{postgresql_url}?{query}")
    with closing(State(urls[0])) as first, closing(State(urls[1])) as second:
        first.runs.begin(RunRecord(spider="feeds", started_at=1.0))
        assert second.runs.latest(1) == []
        ids = {Stores(state).handover.last_position().state for state in (first, second)}
        assert len(ids) == 2
