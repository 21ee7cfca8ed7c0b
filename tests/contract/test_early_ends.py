"""Scrapy's own commands and runners see that a crawl was ended early (decision 29).

The projects have the add-on, and not our ``scrapy crawl``.
"""

import json

import pytest

from tests.helpers.sites import ADDON, IDENTITY, OUR_HANDLER, trouble, write_project
from walsh_scrapy.testing.site import NO_RESOLVER
from walsh_scrapy.testing.web import Reply, Site

SPIDER = """
from scrapy import Spider

class Page(Spider):
    name = "page"
    start_urls = ["http://a.example/"]

    def parse(self, response):
        yield {"url": response.url}
"""
PAGE = Reply("x", content_type="text/html")
#: The state fails while the spider is opened, before Scrapy's engine has started.
START_FAILURE = trouble("StateWithoutRuns")
#: The state fails after the spider was closed.
LATE_FAILURE = trouble("StateDeletedAtTheEnd")
FULL_EXPORT = {
    "FEEDS": json.dumps({"/dev/full": {"format": "csv"}}),
    "EXTENSIONS": json.dumps(
        {
            "scrapy.extensions.feedexport.FeedExporter": None,
            "walsh_scrapy.feeds.feedexport.FeedExporter": 0,
        }
    ),
}


@pytest.fixture
def run(crawl, tmp_path, installed):
    """Return a function that runs `scrapy crawl` in a project; it returns status and reason."""

    def run_page(web, settings=None, **theirs):
        given = ADDON | IDENTITY | theirs
        project = write_project(tmp_path / "project", given, spiders=SPIDER)
        result = crawl(web, "page", project=project, settings=settings)
        return result.exit_code, result.stats["finish_reason"]

    return run_page


def test_a_good_crawl_exits_with_0(direct_web, run):
    assert run(direct_web(Site("a.example", "", {"/": PAGE}))) == (0, "finished")


def test_without_a_network_it_exits_with_1(direct_web, run):
    web = direct_web(Site("a.example", "", {"/": PAGE}))
    web.dns = NO_RESOLVER
    assert run(web, **OUR_HANDLER) == (1, "machine_trouble")


def test_after_a_failure_of_the_state_it_exits_with_1(direct_web, crawl, run):
    def delete(_hit):
        for path in crawl.folder.glob("walsh.sqlite3*"):
            path.unlink()
        return PAGE

    assert run(direct_web(Site("a.example", "", {"/": delete}))) == (1, "state_failed")


@pytest.mark.parametrize("settings", [LATE_FAILURE, FULL_EXPORT], ids=["state", "export"])
def test_after_a_failure_at_its_end_it_exits_with_1(direct_web, run, settings):
    web = direct_web(Site("a.example", "", {"/": PAGE}))
    assert run(web, settings) == (1, "finished")


@pytest.mark.parametrize("forced", [False, True], ids=["AsyncCrawlerProcess", "CrawlerProcess"])
@pytest.mark.parametrize(
    ("settings", "status"),
    [({}, 0), (START_FAILURE, 1), (LATE_FAILURE, 1)],
    ids=["good", "failed at its start", "failed at its end"],
)
def test_the_exit_status_of_runspider(
    direct_web, tmp_path, installed, run_python, forced, settings, status
):
    web = direct_web(Site("a.example", "", {"/": PAGE}))
    file = tmp_path / "page.py"
    file.write_text(SPIDER)
    given = IDENTITY | settings
    given["ADDONS"] = json.dumps(ADDON["ADDONS"])
    given["FORCE_CRAWLER_PROCESS"] = forced
    given["WALSH_STATE_URL"] = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    options = [word for name, value in given.items() for word in ("-s", f"{name}={value}")]
    command = ["-m", "scrapy", "runspider", file, *options]
    done = run_python(*command, cwd=tmp_path, environment=web.environment)
    assert done.returncode == status, done.stderr


#: Runs crawls with one runner, one after the other, and prints a line for each.
SCRIPT = """
import asyncio, json, sys
from scrapy import Spider, crawler, signals
from twisted.internet.asyncioreactor import install

class Page(Spider):
    name = "page"
    start_urls = ["http://a.example/"]

    def parse(self, response):
        self.crawler.signals.connect(self.stopped, signals.engine_stopped)

    def stopped(self):
        print(self.crawler.spider is self, end=" ")

async def run(kind, common, crawls):
    runner = kind()
    for own in crawls:
        one = crawler.Crawler(Page, common | own)
        ended = runner.crawl(one)
        if kind is crawler.CrawlerRunner:
            ended = ended.asFuture(asyncio.get_running_loop())
        await ended
        await asyncio.sleep(0)  # the runner looks at the crawler
        print(one.spider is not None, runner.bootstrap_failed)

install(asyncio.new_event_loop())
kind = getattr(crawler, sys.argv[1])
asyncio.get_event_loop().run_until_complete(run(kind, *json.loads(sys.argv[2])))
"""


@pytest.mark.parametrize("kind", ["CrawlerRunner", "AsyncCrawlerRunner"])
def test_a_runner_notes_a_crawl_that_ended_early(direct_web, tmp_path, installed, run_python, kind):
    """Listeners at the end have its spider, and crawls before and after it theirs."""
    web = direct_web(Site("a.example", "", {"/": PAGE}))
    crawls = [{"WALSH_STATE_URL": f"sqlite:///{tmp_path}/{name}.sqlite3"} for name in "123"]
    crawls[1] |= LATE_FAILURE
    call = json.dumps([ADDON | IDENTITY | OUR_HANDLER, crawls])
    done = run_python("-c", SCRIPT, kind, call, cwd=tmp_path, environment=web.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True False", "True False True", "True True True"]
