"""The downloads of pipelines in a project's own crawl, and its hosts that another worker owns."""

from itertools import pairwise

import pytest

from tests.helpers.sites import ADDON, paths, write_project
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site

AGENT = "Example-Bot/1.0 (+https://bot.example/)"
SPIDERS = """
from scrapy import Request

from tests.helpers.theirs import Urls


class Files(Urls):
    name = "files"

    def parse(self, response):
        yield {"url": response.url, "file_urls": [f"{response.url}.pdf"]}


class Handled(Urls):
    name = "handled"

    def request(self, url):
        return Request(url, meta={"handle_httpstatus_all": True}, errback=self.ended)

    def parse(self, response):
        yield {"status": response.status}
"""
PAGE = Reply("<title>x</title>", content_type="text/html")
FILE = Reply(b"%PDF", content_type="application/pdf")


@pytest.fixture
def crawled(simulated, tmp_path):
    """Return a function that crawls pages of a.example in simulated time, each with a file."""

    def run(pages, *problems, spider="files", files=None, **settings):
        given = ADDON | {"USER_AGENT": AGENT, "HOST": "a.example", **settings}
        given |= {
            "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
            "FILES_STORE": str(tmp_path / "files"),
            "EXTENSIONS": {f"tests.helpers.problems.{name}": 0 for name in problems},
        }
        project = write_project(tmp_path / "theirs", given, spiders=SPIDERS)
        files = files or {f"{path}.pdf": FILE for path in pages}
        urls = " ".join(f"http://a.example{path}" for path in pages)
        web = Site("a.example", "", pages | files)
        (result,) = simulated(
            web,
            spider=spider,
            project=project,
            arguments={"urls": urls},
            settings={"WALSH_PROGRESS": "auto"},
        )
        return result

    return run


def numbered(number):
    return {f"/{place}": PAGE for place in range(number)}


@pytest.mark.parametrize("status", [429, 503])
def test_a_file_is_requested_again_after_a_refusal(crawled, status):
    """Scrapy's pipelines let their requests handle every status: no project has chosen that."""
    refused = Reply(status=status, headers={"Retry-After": "20"})
    result = crawled(numbered(1), files={"/0.pdf": [refused, FILE]})
    assert paths(result.log) == ["a.example/robots.txt", "a.example/0", *["a.example/0.pdf"] * 2]
    assert [len(item["files"]) for item in result.items] == [1]
    assert_polite(result.log, user_agent=AGENT, serial=False, anonymous=False)


def test_a_crawl_whose_files_are_deferred_ends_as_deferred(crawled):
    refused = Reply(status=503, headers={"Retry-After": "2000"})
    result = crawled(numbered(1), files={"/0.pdf": refused})
    assert [item["files"] for item in result.items] == [[]]
    assert result.stats["finish_reason"] == "deferred"
    assert "1 request deferred to a later run" in result.stderr


def test_a_callback_that_handles_a_refusal_gets_it(crawled):
    result = crawled({"/0": [Reply(status=503), PAGE]}, spider="handled", files={"/x": FILE})
    assert [item["status"] for item in result.items] == [503]


@pytest.mark.parametrize("delay", [0, 0.2])
def test_files_come_with_the_delay_of_the_project(crawled, delay):
    pages = {"/0": PAGE, "/1": PAGE, "/2": PAGE}
    hits = crawled(pages, DOWNLOAD_DELAY=delay).log[1:]
    gaps = [hit.started - before.ended for before, hit in pairwise(hits)]
    assert all(delay <= gap < delay + 0.5 for gap in gaps), gaps


@pytest.mark.parametrize("delay", [0.5, 1, 2, 5])
def test_workers_take_turns_beside_pages_with_files(crawled, delay):
    """A page waits while a file is sent, and a file while a page is: neither keeps the host."""
    result = crawled(numbered(20), "OthersWork", DOWNLOAD_DELAY=delay)
    assert [len(item["files"]) for item in result.items] == [1] * 20
    assert 10 <= result.stats["turns"] <= 8 * 40


def test_a_host_of_another_worker_is_waited_for(crawled):
    """For as long as for a host that is on hold: no later run makes these requests again."""
    result = crawled(numbered(3), "OwnedForLong")
    assert len(result.items) == 3
    assert "walsh/requests/deferred" not in result.stats


def test_all_requests_for_a_host_of_another_worker_wait_together(crawled):
    result = crawled(numbered(30), "OwnedByAnother", WALSH_MAX_WAIT=200)
    assert result.log == []
    assert result.stats["walsh/requests/deferred"] == 30
    assert 200 <= result.seconds < 300
    assert "waiting for a.example, which another worker owns" in result.stderr
    assert "a.example: requests deferred to a later run" in result.stderr
