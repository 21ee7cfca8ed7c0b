"""Crawls that do not lose their work: jobs that are stopped, and the end of deferred requests."""

import os
import signal
from collections import Counter
from itertools import pairwise

import pytest

from tests.helpers.sites import ADDON, IDENTITY, paths, rows_of, write_project
from walsh_scrapy.testing.web import Reply, Site

SPIDER = '''
from scrapy import Request, Spider

class Links(Spider):
    """Requests all pages of an index, and yields what it reads."""

    name = "links"

    async def start(self):
        yield Request("http://a.example/", errback=self.failed)

    def parse(self, response):
        yield {"url": response.url}
        for url in response.css("a::attr(href)").getall():
            yield response.follow(url, callback=self.parse, errback=self.failed)

    def failed(self, failure):
        yield {"url": failure.request.url, "trouble": type(failure.value).__name__}


class Slow(Links):
    name = "slow"
    download_delay = 40
    custom_settings = {"DOWNLOAD_SLOTS": {"b.example": {"delay": 70}}}
'''


def index(*urls):
    links = "".join(f'<a href="{url}">x</a>' for url in urls)
    return Reply(f"<title>x</title>{links}", content_type="text/html")


PAGE = index()


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path / "theirs", {**ADDON, **IDENTITY}, spiders=SPIDER)


def redirect(url):
    return Reply(status=302, headers={"Location": url})


PAGES = [f"http://a.example/{number}" for number in range(1, 5)]
OTHERS = [f"http://b.example/{number}" for number in range(1, 5)]


def web_of_links():
    """Links to pages of two hosts; some redirect, and one is refused at first."""
    refused = Reply(status=503, headers={"Retry-After": "2"})
    return (
        Site(
            "a.example",
            "",
            {
                "/": index(*PAGES, *OTHERS, "http://b.example/redirects"),
                "/1": redirect("/moved"),
                "/moved": PAGE,
                "/2": PAGE,
                "/3": redirect("http://b.example/moved"),
                "/4": PAGE,
            },
        ),
        Site(
            "b.example",
            "",
            {
                "/1": PAGE,
                "/2": [refused, PAGE],
                "/3": PAGE,
                "/4": PAGE,
                "/moved": PAGE,
                "/redirects": redirect("/last"),
                "/last": PAGE,
            },
        ),
    )


READ = {
    *(f"a.example/{name}" for name in ("", "2", "4", "moved")),
    *(f"b.example/{name}" for name in ("1", "2", "3", "4", "moved", "last")),
}


def reads(log):
    """How often each page was read, by the log of its server."""
    return Counter(f"{hit.host}{hit.path}" for hit in log if hit.status == 200)


@pytest.mark.long
@pytest.mark.parametrize(
    ("serial", "pages"),
    [(True, (4, 6, 9, 12)), (False, (4, 7, 10, 13))],
    ids=["serial", "parallel"],
)
def test_a_job_that_is_stopped_and_killed_reads_each_page(
    loopback_web, crawl, project, serial, pages
):
    """The signals are sent after these numbers of requests."""
    web = loopback_web(*web_of_links())
    settings = {"JOBDIR": project / "job", "WALSH_SERIAL": serial, "DOWNLOAD_TIMEOUT": 1}
    stops = [
        [signal.SIGTERM],
        [signal.SIGKILL],
        [signal.SIGINT],
        [signal.SIGTERM, signal.SIGTERM],
    ]
    in_flight = set()
    for count, sent in zip(pages, stops, strict=True):
        running = crawl.start(web, "links", project=project, settings=settings)
        while running.running and not web.wait_for(
            lambda log, minimum=count: len(log) >= minimum, 0.02
        ):
            pass
        for number in sent:
            os.kill(running.pid, number)
        result = running.wait()
        if sent not in ([signal.SIGTERM], [signal.SIGINT]):
            last = {hit.host: f"{hit.host}{hit.path}" for hit in result.log}
            in_flight |= {*last.values()}
    result = crawl(web, "links", project=project, settings=settings)
    assert (result.exit_code, result.stats["finish_reason"]) == (0, "finished")
    found = reads(web.log)
    assert found.keys() >= READ
    again = {page for page, times in found.items() if times > 1 and page in READ}
    assert again <= in_flight


@pytest.mark.parametrize("serial", [True, False])
@pytest.mark.parametrize(
    "limit",
    [{"CLOSESPIDER_PAGECOUNT": 2}, {"CLOSESPIDER_TIMEOUT": 3}],
)
def test_a_job_that_closes_itself_reads_each_page_once(simulated, project, serial, limit):
    results = simulated(
        *web_of_links(),
        starts=[60.0 * number for number in range(16)],
        spider="links",
        project=project,
        settings={"JOBDIR": project / "job", "WALSH_SERIAL": serial, **limit},
    )
    assert results[0].stats["finish_reason"].startswith("closespider_")
    assert results[-1].stats["finish_reason"] == "finished"
    found = reads(hit for result in results for hit in result.log if hit.path != "/robots.txt")
    assert found == dict.fromkeys(READ, 1)


@pytest.mark.long
def test_a_job_goes_on_without_the_add_on_and_with_it_again(loopback_web, crawl, project):
    web = loopback_web(*web_of_links())
    job = {"JOBDIR": project / "job", "WALSH_SERIAL": False}
    for enabled, pages in ((False, 1), (True, 5), (False, 4), (True, 0)):
        settings = {**job, "WALSH_ENABLED": enabled, "CLOSESPIDER_PAGECOUNT": pages}
        settings |= {"CONCURRENT_REQUESTS": 1}
        result = crawl(web, "links", project=project, settings=settings)
        assert result.exit_code == 0, result.stderr
    assert result.stats["finish_reason"] == "finished"
    found = reads(hit for hit in web.log if hit.path != "/robots.txt")
    assert found == dict.fromkeys(READ, 1)


def test_deferred_requests_end_a_crawl_as_deferred(simulated, project):
    busy = Reply(status=429, headers={"Retry-After": "7200"})
    links = [f"http://busy.example/{number}" for number in range(30)]
    site = Site(
        "busy.example", "", {f"/{number}": PAGE for number in range(30)} | {"/0": [busy, PAGE]}
    )
    first, second, third = simulated(
        Site("a.example", "", {"/": index(*links)}),
        site,
        starts=[0.0, 60.0, 9000.0],
        spider="links",
        project=project,
        settings={"JOBDIR": project / "job"},
    )
    assert first.exit_code == 0
    assert first.stats["finish_reason"] == second.stats["finish_reason"] == "deferred"
    assert first.stats["walsh/requests/deferred"] == 30
    lines = [line for line in first.stderr.splitlines() if " INFO: " in line]
    (line,) = [
        line for line in lines if "deferred to a later run" in line and "30 requests" in line
    ]
    assert "busy.example" in line
    assert len([line for line in lines if "busy.example" in line]) == 1
    assert third.stats["finish_reason"] == "finished"
    found = reads(hit for hit in third.log if hit.path != "/robots.txt")
    assert {page for page in found if page.startswith("busy")} == {
        f"busy.example/{number}" for number in range(30)
    }


def test_a_crawl_without_a_jobdir_ends_as_deferred_too(simulated, project):
    slow = Site("slow.example", "User-agent: *\nCrawl-delay: 5000\n", {"/1": PAGE, "/2": PAGE})
    (result,) = simulated(
        Site("a.example", "", {"/": index("http://slow.example/1", "http://slow.example/2")}),
        slow,
        spider="links",
        project=project,
    )
    assert result.stats["finish_reason"] == "deferred"
    lines = [line for line in result.stderr.splitlines() if " INFO: " in line]
    (line,) = [line for line in lines if "2 requests deferred to a later run" in line]
    assert "slow.example" in line


def test_a_host_that_refuses_all_has_one_line_with_the_number(simulated, project):
    links = [f"http://busy.example/{number}" for number in range(30)]
    (result,) = simulated(
        Site("a.example", "", {"/": index(*links)}),
        Site("busy.example", "", {f"/{number}": Reply(status=503) for number in range(30)}),
        spider="links",
        project=project,
        settings={"WALSH_MAX_RETRIES": 1},
    )
    deferred = result.stats["walsh/requests/deferred"]
    lines = [line for line in result.stderr.splitlines() if " INFO: " in line]
    (line,) = [line for line in lines if f"{deferred} requests deferred to a later run" in line]
    assert "busy.example" in line
    assert len([line for line in lines if "busy.example" in line]) <= 4
    assert result.stats["finish_reason"] == "deferred"


def test_the_delay_that_scrapy_would_use_is_not_stored(simulated, project, tmp_path):
    links = [*PAGES[1:2], "http://b.example/1", "http://b.example/3"]
    (result,) = simulated(
        Site("a.example", "", {"/": index(*links), "/2": PAGE}),
        Site("b.example", "", {"/1": PAGE, "/3": PAGE}),
        spider="slow",
        project=project,
        settings={"DOWNLOAD_DELAY": 10},
    )
    gaps = {}
    for host in ("a.example", "b.example"):
        hits = [hit for hit in result.log if hit.host == host]
        gaps[host] = [later.started - hit.ended for hit, later in pairwise(hits)]
    assert len(gaps["a.example"]) == len(gaps["b.example"]) == 2
    assert all(40.0 <= gap < 41.0 for gap in gaps["a.example"])
    assert all(70.0 <= gap < 71.0 for gap in gaps["b.example"])
    stored = rows_of(result.folder.parent, "SELECT max(delay) FROM hosts")
    assert stored == [(1.0,)]


def test_autothrottle_sets_the_least_delay(simulated, project):
    slow = Reply("<title>x</title>", content_type="text/html", delay=4.0)
    (result,) = simulated(
        Site("a.example", "", {"/": index(*PAGES[:3]), "/1": slow, "/2": PAGE, "/3": PAGE}),
        spider="links",
        project=project,
        settings={
            "AUTOTHROTTLE_ENABLED": True,
            "AUTOTHROTTLE_START_DELAY": 20,
            "AUTOTHROTTLE_TARGET_CONCURRENCY": 0.5,
        },
    )
    gaps = [round(later.started - hit.ended) for hit, later in pairwise(result.log)]
    assert [hit.path for hit in result.log] == ["/robots.txt", "/", "/1", "/2", "/3"]
    assert gaps == [20, 1, 8, 1]


def test_a_delay_above_walsh_max_wait_is_waited_for(simulated, project):
    (result,) = simulated(
        Site("a.example", "", {"/": PAGE}),
        spider="links",
        project=project,
        settings={"DOWNLOAD_DELAY": 1000},
    )
    assert paths(result.log) == ["a.example/robots.txt", "a.example/"]
    assert result.stats["finish_reason"] == "finished"
    assert result.log[1].started - result.log[0].ended >= 1000.0


def test_no_concurrency_per_domain_of_a_project_hangs_the_crawl(simulated, project):
    given = {"CONCURRENT_REQUESTS_PER_DOMAIN": 0, "WALSH_SERIAL": False}
    (result,) = simulated(
        Site("a.example", "", {"/": PAGE}), spider="links", project=project, settings=given
    )
    assert [item["url"] for item in result.items] == ["http://a.example/"]
