"""The spider of other projects, which the projects of `write_project` import from here."""

from scrapy import Request, Spider


class Urls(Spider):
    """Requests the URLs of its argument, and yields how each ended."""

    urls = ""

    async def start(self):
        for url in self.urls.split():
            yield self.request(url)

    def request(self, url):
        return Request(url, errback=self.ended)

    def parse(self, response):
        yield {"url": response.url}

    def ended(self, failure):
        trouble = type(failure.value).__name__
        yield {"url": failure.request.url, "trouble": trouble, "why": str(failure.value)}

    async def asked(self, url):
        """Request a URL past the scheduler; return how that ended."""
        try:
            await self.crawler.engine.download_async(Request(url))
        except Exception as error:  # noqa: BLE001 - a test says which one it has to be
            self.logger.info("%s was asked for: %r", url, error)
            return {"asked": url, "trouble": type(error).__name__, "why": str(error)}
        return {"asked": url}
