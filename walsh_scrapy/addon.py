"""All gates, the scheduler and the forced settings, for any Scrapy project (decision 22).

ADDONS = {"walsh_scrapy.addon.Addon": 500}
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final

from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings

from walsh_scrapy.exceptions import refuse_to_start
from walsh_scrapy.options import BadSetting, Options, number_of
from walsh_scrapy.runtime.gates import REPLACED, SPIDER_GATES, Gate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

logger = logging.getLogger(__name__)

#: Scrapy's default. It is installed before an add-on could set it.
REACTOR: Final = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
#: A priority above the command line (40), because no operator may override the contract's MUSTs.
FORCED: Final = 100

EXTENSIONS: Final = {
    "walsh_scrapy.extensions.mediatypes.MediaTypes": 0,
    "walsh_scrapy.extensions.progress.Progress": 0,
    "walsh_scrapy.extensions.summary.Summary": 0,
}
#: Only http and https, and each request is sent once.
HANDLERS: Final = {
    "http": "walsh_scrapy.downloadhandler.DownloadHandler",
    "https": "walsh_scrapy.downloadhandler.DownloadHandler",
    "data": None,
    "file": None,
    "ftp": None,
    "s3": None,
}

#: 429 and 503 are the backoff gate's (order 549); the rest stays with Scrapy's RetryMiddleware.
RETRIED_BY_SCRAPY: Final = [500, 502, 504, 522, 524, 408]
MAX_BODY: Final = 15 * 1024 * 1024
#: Seconds for one request, from the name look-up to the last byte; a lease lasts longer.
LONGEST_TIMEOUT: Final = 60

MUSTS: Final[dict[str, Any]] = {
    "SCHEDULER": "walsh_scrapy.scheduler.Scheduler",
    "ROBOTSTXT_OBEY": True,
    "COOKIES_ENABLED": False,
    "REFERER_ENABLED": False,
    "METAREFRESH_ENABLED": False,
    "HTTPCACHE_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "AUTOTHROTTLE_ENABLED": False,
    "DOWNLOAD_SLOTS": {},
    "DOWNLOAD_VERIFY_CERTIFICATES": True,
    "RETRY_HTTP_CODES": RETRIED_BY_SCRAPY,
}
SERIAL: Final[dict[str, Any]] = {"CONCURRENT_REQUESTS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
CEILINGS: Final[dict[str, int]] = {
    "DOWNLOAD_MAXSIZE": MAX_BODY,
    "DOWNLOAD_WARNSIZE": MAX_BODY,
    "DOWNLOAD_TIMEOUT": LONGEST_TIMEOUT,
}


_CHAIN: Final = {gate.path: gate.order for gate in Gate} | dict.fromkeys(REPLACED)


class Addon:
    """Makes a Scrapy project keep the contract, whatever its settings or command line say."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the add-on for one crawler."""
        return cls(crawler)

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """End the process with one line if the reactor is not asyncio's, which the gates need."""
        is_asyncio = settings["TWISTED_REACTOR"] == REACTOR
        if is_asyncio and settings.getbool("TWISTED_REACTOR_ENABLED"):
            return
        if settings.getbool("WALSH_ENABLED", default=True):
            error = BadSetting(
                f"TWISTED_REACTOR has to be {REACTOR!r}, Scrapy's default, and "
                "TWISTED_REACTOR_ENABLED True"
            )
            refuse_to_start(error, log_file=None)

    def update_settings(self, settings: Settings) -> None:
        """Force what the contract demands, and log each value that is overridden.

        A bad ``WALSH_`` setting ends the process with one line.
        """
        try:
            options = Options.from_settings(settings)
            musts = self._musts(settings, options)
        except BadSetting as error:
            refuse_to_start(error, log_file=settings["LOG_FILE"])
        if not options.enabled:
            raise NotConfigured("WALSH_ENABLED is False: none of the contract's gates is in force")
        # A DOWNLOAD_DELAY is kept as our own spacing. In the downloader it would delay a request
        # whose host is leased already.
        settings.set("WALSH_MIN_INTERVAL", options.min_interval, priority=FORCED)
        settings.set("DOWNLOAD_DELAY", 0, priority=FORCED)
        for name, value in musts.items():
            _force(settings, name, value)
        for name, components in (
            ("DOWNLOADER_MIDDLEWARES", _CHAIN),
            ("SPIDER_MIDDLEWARES", SPIDER_GATES),
            ("EXTENSIONS", EXTENSIONS),
            ("DOWNLOAD_HANDLERS", HANDLERS),
        ):
            _force_components(settings, name, components)

    @staticmethod
    def _musts(settings: Settings, options: Options) -> dict[str, Any]:
        ceilings = {name: _at_most(settings, name, most) for name, most in CEILINGS.items()}
        serial = SERIAL if options.serial else {}
        return {"USER_AGENT": options.user_agent, **MUSTS, **serial, **ceilings}


def _at_most(settings: Settings, name: str, most: float) -> float:
    """Return a number from the settings, at most ``most``; 0, which is "no limit", becomes that."""
    given = number_of(settings, name, most, low=0.0, high=math.inf)
    number = min(given or most, most)
    return int(number) if number == int(number) else number


def _force(settings: Settings, name: str, value: object) -> None:
    given, priority = settings.get(name), settings.getpriority(name) or 0
    if priority > 0 and str(given) != str(value):
        logger.warning("%s=%s is overridden: the contract asks for %r", name, given, value)
    settings.set(name, value, priority=FORCED)


def _force_components(
    settings: Settings, name: str, components: Mapping[str, int | str | None]
) -> None:
    chain = settings[name]
    if not isinstance(chain, BaseSettings):
        chain = BaseSettings(settings.getdict(name), priority="project")
        settings.set(name, chain, priority=FORCED)
    for component, order in components.items():
        given = chain.get(component, order)
        if given != order:
            logger.warning(
                "%s: %s=%s is overridden: the contract asks for %s", name, component, given, order
            )
        chain.set(component, order, priority=FORCED)
