"""What Scrapy's own download handler logs and writes, ours does too."""

from tests.helpers.sites import ADDON, IDENTITY, log_lines, write_project
from walsh_scrapy.testing.web import Certificate, Reply, Site

SPIDER = """
from scrapy import signals
from scrapy.exceptions import StopDownload

from tests.helpers.theirs import Urls


class Stopping(Urls):
    name = "stopping"

    @classmethod
    def from_crawler(cls, crawler, **arguments):
        spider = super().from_crawler(crawler, **arguments)
        crawler.signals.connect(spider.received, signal=signals.bytes_received)
        return spider

    def received(self, request):
        if request.url.endswith("/stopped"):
            raise StopDownload(fail=False)
"""


def test_tls_sizes_and_stopped_downloads(direct_web, crawl, tmp_path, installed, monkeypatch):
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    pages = {f"/{name}": Reply("x" * 2000) for name in ("large", "stopped")}
    web = direct_web(Site("a.example", "", pages, tls=Certificate.GOOD))
    given = {
        **ADDON,
        **IDENTITY,
        "DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING": True,
        "DOWNLOAD_WARNSIZE": 1000,
    }
    project = write_project(tmp_path / "project", given, spiders=SPIDER)
    urls = "https://a.example/large https://a.example/stopped"
    result = crawl(web, "stopping", project=project, arguments={"urls": urls})
    assert len(result.items) == 2
    assert log_lines(result, "SSL connection", "a.example", "TLSv1.")
    assert log_lines(result, "SSL connection", 'issuer "')
    assert len(log_lines(result, "(1000)", "2000 bytes", "<GET https://a.example/large>")) == 1
    assert log_lines(result, "<GET https://a.example/stopped>", "Stopping.received")
    assert "CLIENT_" in keys.read_text()
