"""Code of another project that interferes with every request to some hosts.

The setting ACTS says what is done: for each host a list of (place, act). A place is the order of a
middleware and its method, such as "500 response", or the name of a signal.
"""

import json
from collections import Counter, defaultdict
from urllib.parse import urlsplit

from scrapy import Request, signals
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import HtmlResponse

from tests.helpers.theirs import Urls
from walsh_scrapy.feeds.spiders import FeedsSpider

#: Before, between and behind our middlewares.
ORDERS = (0, 3, 50, 105, 545, 555, 595, 700, 870, 895, 950)
PLACES = {
    "request": (
        "answer", "answer page", "raise", "ignore", "copy", "bare copy", "other", "private",
        "limits", "wipe",
    ),
    "response": ("answer", "status", "headers", "raise", "again", "other", "private", "copy"),
    "exception": ("answer", "again", "raise"),
    "headers_received": ("stop", "fail", "headers"),
    "bytes_received": ("stop", "fail", "late"),
    "response_downloaded": ("headers", "status"),
    "handler": ("raise", "ignore"),
}  # fmt: skip
#: Acts that begin a request anew, and so are done once for each URL.
ONCE = ("copy", "bare copy", "other", "private", "again")
ERRORS = {"raise": ValueError, "ignore": IgnoreRequest}


def answer(request):
    return HtmlResponse(request.url, body=b"<title>theirs</title>", request=request)


def again(request):
    return request.replace(dont_filter=True)


def bare_copy(request):
    return Request(request.url, dont_filter=True)


def other(request):
    return request.replace(url=f"{request.url}?other", dont_filter=True)


def private(request):
    return Request(f"http://{urlsplit(request.url).netloc}/private", dont_filter=True)


INSTEAD = {
    "answer": answer,
    "copy": again,
    "again": again,
    "bare copy": bare_copy,
    "other": other,
    "private": private,
}


class Pages(Urls):
    name = "pages"

    def request(self, url):
        return Request(url, errback=self.ended, dont_filter=True)


class Declared(FeedsSpider):
    name = "declared"


class Acts:
    """What is done to the requests of a crawl."""

    def __init__(self, crawler):
        self._acts = defaultdict(list)
        for host, acts in json.loads(crawler.settings["ACTS"]).items():
            for place, act in acts:
                self._acts[host, place].append(act)
        self._done = set()

    def at(self, place, request):
        """Yield what is done at a place to a request."""
        for act in self._acts[urlsplit(request.url).hostname, place]:
            key = (place, act, request.url.partition("?")[0])
            if key not in self._done:
                if act in ONCE:
                    self._done.add(key)
                yield act


class Interferer:
    """The part of the middlewares, the listener and the handler that they share."""

    order = 0

    def __init__(self, crawler):
        if not hasattr(crawler, "acts"):
            crawler.acts = Acts(crawler)
        self.acts = crawler.acts

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def begin(self, request, place):
        """Return a request or response in place of a request, or None."""
        for act in self.acts.at(place, request):
            if act in ERRORS:
                raise ERRORS[act]("theirs")
            if act in INSTEAD:
                return INSTEAD[act](request)
            if act == "answer page" and not request.meta.get("dont_obey_robotstxt"):
                return answer(request)
            if act == "wipe":
                request.meta.clear()
            elif act == "limits":
                request.meta.update(download_maxsize=1, download_timeout=0.001)
        return None


class Middleware(Interferer):
    async def process_request(self, request):
        return self.begin(request, f"{self.order} request")

    async def process_response(self, request, response):
        for act in self.acts.at(f"{self.order} response", request):
            if act in ERRORS:
                raise ERRORS[act]("theirs")
            if act == "status":
                response = response.replace(status=404)
            elif act == "headers":
                response.headers.clear()
            elif act == "copy":
                response = response.replace(request=request.copy())
            elif act == "answer":
                response = answer(request)
            else:
                return INSTEAD[act](request)
        return response

    async def process_exception(self, request, exception):
        return self.begin(request, f"{self.order} exception")


for order in ORDERS:
    name = f"Middleware{order}"
    globals()[name] = type(name, (Middleware,), {"order": order, "__module__": __name__})


class Listener(Interferer):
    """An extension that listens to the signals of downloads."""

    def __init__(self, crawler):
        super().__init__(crawler)
        for name in ("headers_received", "bytes_received", "response_downloaded"):
            crawler.signals.connect(getattr(self, name), getattr(signals, name))

        self.received = Counter()

    def headers_received(self, headers, request):
        for act in self.acts.at("headers_received", request):
            if act == "headers":
                headers.clear()
            else:
                raise StopDownload(fail=act == "fail")

    def bytes_received(self, data, request):
        self.received[request.url] += len(data)
        for act in self.acts.at("bytes_received", request):
            if act != "late" or self.received[request.url] > 500 * 1024:
                raise StopDownload(fail=act != "stop")

    def response_downloaded(self, response, request):
        for act in self.acts.at("response_downloaded", request):
            if act == "headers":
                response.headers.clear()
            else:
                response.status = 404


class Handler(HTTP11DownloadHandler):
    """Scrapy's own handler, which fails for some hosts."""

    def __init__(self, crawler):
        super().__init__(crawler)
        self.acts = Interferer(crawler).acts

    async def download_request(self, request):
        for act in self.acts.at("handler", request):
            raise {"raise": ValueError, "ignore": IgnoreRequest, "fail": StopDownload}[act](
                "theirs"
            )
        return await super().download_request(request)


def interfering(acts):
    """The settings of a project with this code; ``acts`` by host."""
    here = __name__
    return {
        "ACTS": json.dumps(acts),
        "SPIDER_MODULES": [here],
        "EXTENSIONS": {f"{here}.Listener": 0},
        "DOWNLOADER_MIDDLEWARES": {f"{here}.Middleware{order}": order for order in ORDERS},
    }
