"""`scrapy report`: a page about real runs, whole or not at all, and one line about it."""

import re

import pytest

from tests.helpers.sites import feed, site
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.web import Reply

SOURCES = [
    "http://blog.example/feed",
    "http://slow.example/feed",
    "http://lost.example/feed",
]


@pytest.fixture
def report(tmp_path, on_state):
    """Run `scrapy report` on the state that the crawls of this test share."""

    def run(*arguments, status=0):
        write_sources(tmp_path / "sources.txt", SOURCES)
        result = on_state("report", *arguments)
        assert result.returncode == status, result.stderr
        assert "Traceback" not in result.stderr
        return result

    return run


def test_the_report_of_a_run_compares_the_pauses_that_servers_saw(
    loopback_web, crawl, again, report, tmp_path
):
    web = loopback_web(
        site("blog.example", feed=feed(posts=["R&D", "Two"])),
        site("slow.example", "User-agent: *\nCrawl-delay: 2\n", feed=[feed(), Reply(status=304)]),
        site("lost.example", feed=Reply("", status=404)),
    )
    crawl(web, sources=SOURCES)
    page = tmp_path / "report.html"
    result = report("-o", page)
    assert re.fullmatch(
        rf"Run 1 of feeds, .* UTC: \d+ KiB written to {re.escape(str(page))}\n", result.stderr
    )
    assert result.stdout == ""
    text = page.read_text("utf-8")
    assert "R&amp;D</bdi>" in text
    assert "1 source in trouble: 1 failing" in text
    assert "scrapy discover http://lost.example/feed" in text
    assert 'class="short"' not in text
    rows = {row[0]: row[1:] for row in re.findall(PAUSES, text)}
    assert rows.keys() == {"blog.example", "slow.example", "lost.example"}
    kept, asked, longest = rows["slow.example"]
    assert (asked, longest) == ("2.00", "2.00")
    assert 2.0 <= float(kept) < 60.0
    assert rows["blog.example"][1:] == ("1.00", "1.00")
    # What exists is kept, and what is wrong is told in one line.
    refused = report("-o", page, status=1).stderr
    assert refused == f"walsh-scrapy: {page} exists already; -O replaces it\n"
    assert page.read_text("utf-8") == text
    # A second run, which nothing new came of; and both of them.
    again(web, sources=SOURCES)
    second = report("-o", "-").stdout
    assert '<section id="new"' not in second
    assert "<dt>unchanged (304)</dt><dd>0</dd>" not in second
    both = report("-o", "-", "--since", "1d").stdout
    assert 'class="short"' not in both
    assert both.count('<section id="runs"') == 1


#: Host, smallest pause kept, spacing asked for and by what, of a row in the page.
PAUSES = re.compile(
    r'<bdi>([\w.]+)</bdi></th>\n<td class="number">([\d.]+) s</td>'
    r'<td class="number">([\d.]+) s</td><td class="number">([\d.]+) s</td>'
)
