"""All middlewares, the scheduler and the forced settings, for any Scrapy project (decision 22).

ADDONS = {"walsh_scrapy.Addon": 500}
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings
from scrapy.utils.python import global_object_name

from walsh_scrapy import identity
from walsh_scrapy.crawl.log import install_json_log
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.startup import (
    DOWNLOADER,
    HANDLER,
    REPLACED,
    SCHEDULER,
    SCHEMES,
    SPIDER_GATES,
    Gate,
    path_of,
    reactor_problem,
)
from walsh_scrapy.options import (
    BadSetting,
    ForcedSetting,
    Options,
    bad_setting,
    log_format_of,
    number_of,
    proposed_identity,
)
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

logger = logging.getLogger(__name__)

#: A priority above the command line (40), because no operator may override the contract's MUSTs.
FORCED: Final = 100

EXTENSIONS: Final = {
    "walsh_scrapy.extensions.mediatypes.MediaTypes": 0,
    "walsh_scrapy.extensions.progress.Progress": 0,
    "walsh_scrapy.extensions.summary.Summary": 0,
}
#: Each request is sent once. No other scheme has a handler.
HANDLERS: Final = dict.fromkeys(SCHEMES, HANDLER)

#: 429 and 503 are for BackoffMiddleware (order 549); the rest stays with Scrapy's RetryMiddleware.
RETRIED_BY_SCRAPY: Final = [500, 502, 504, 522, 524, 408]
MAX_BODY: Final = 15 * 1024 * 1024
#: Seconds for one request, from the name look-up to the last byte; a host is busy for longer.
LONGEST_TIMEOUT: Final = 60
#: A setting with more entries than this is named by their number.
_FEW, _MANY = 3, 12

MUSTS: Final[dict[str, Any]] = {
    "SCHEDULER": SCHEDULER,
    "DOWNLOADER": DOWNLOADER,
    "ROBOTSTXT_OBEY": True,
    "COMPRESSION_ENABLED": True,
    "COOKIES_ENABLED": False,
    "REFERER_ENABLED": False,
    "METAREFRESH_ENABLED": False,
    "HTTPCACHE_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "DOWNLOAD_VERIFY_CERTIFICATES": True,
    "RETRY_HTTP_CODES": RETRIED_BY_SCRAPY,
}
#: `crawl.delays` keeps the delays of these: in the downloader they would delay a request whose
#: exchange has begun.
DELAYS: Final[dict[str, Any]] = {
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_SLOTS": {},
    "AUTOTHROTTLE_ENABLED": False,
}
#: The components that these settings switch off. Scrapy imports a component to find that out, and
#: these import an HTTP client and a web server.
SWITCHED_OFF: Final = {
    "DOWNLOADER_MIDDLEWARES_BASE": ("scrapy.downloadermiddlewares.cookies.CookiesMiddleware",),
    "EXTENSIONS_BASE": (
        "scrapy.extensions.remote_control.RemoteControl",
        "scrapy.extensions.telnet.TelnetConsole",
        "scrapy.extensions.throttle.AutoThrottle",
    ),
}
SERIAL: Final[dict[str, Any]] = {"CONCURRENT_REQUESTS": 1}
CEILINGS: Final[dict[str, int]] = {
    "DOWNLOAD_MAXSIZE": MAX_BODY,
    "DOWNLOAD_WARNSIZE": MAX_BODY,
    "DOWNLOAD_TIMEOUT": LONGEST_TIMEOUT,
    "REDIRECT_MAX_TIMES": 5,
}
#: A copy that another bot keeps is found before PacingMiddleware, so it begins no exchange (R4).
HTTP_CACHE: Final = {"scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware": 870}
#: Tables whose keys are components; those of ``DOWNLOAD_HANDLERS`` are schemes.
_COMPONENTS: Final = ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS")
_CHAIN: Final = {gate.path: gate.order for gate in Gate} | dict.fromkeys(REPLACED)
#: Why the values that a project sets are ignored.
REASONS: Final = {
    "USER_AGENT": "WALSH_USER_AGENT names your bot",
    "SCHEDULER": "this add-on's scheduler waits until a host may be requested",
    "DOWNLOADER": "this add-on's middlewares need Scrapy's downloader",
    "ROBOTSTXT_OBEY": "this add-on always obeys robots.txt",
    "COMPRESSION_ENABLED": "this add-on reads compressed documents",
    "COOKIES_ENABLED": "this add-on never sends cookies",
    "REFERER_ENABLED": "this add-on never sends a Referer",
    "METAREFRESH_ENABLED": "this add-on does not follow the refresh of a page",
    "HTTPCACHE_ENABLED": "this add-on decides whether a cache may answer",
    "TELNETCONSOLE_ENABLED": "nobody may control a crawl from outside",
    "REMOTE_CONTROL_ENABLED": "nobody may control a crawl from outside",
    "CONCURRENT_REQUESTS": "requests are sent one at a time",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "a host gets one request at a time",
    "DOWNLOAD_VERIFY_CERTIFICATES": "this add-on checks every certificate",
    "RETRY_HTTP_CODES": "BackoffMiddleware retries 429 and 503, after the waits of their hosts",
    "DOWNLOAD_HANDLERS": "Walsh-Research sends its requests by the handler of this add-on",
    **dict.fromkeys(CEILINGS, "that is the maximum"),
}
#: What a project with its own identity sets to choose otherwise (decision 24).
REMEDIES: Final = {
    "CONCURRENT_REQUESTS": "set WALSH_SERIAL = False to crawl several hosts at once",
}
_OWN_IDENTITY: Final = "your own WALSH_USER_AGENT and WALSH_UA_TOKEN"
REMEDIES_OF_WALSH_RESEARCH: Final = {
    "CONCURRENT_REQUESTS": f"with {_OWN_IDENTITY} you can set WALSH_SERIAL = False",
    "HTTPCACHE_ENABLED": f"set {_OWN_IDENTITY} to use the HTTP cache",
    "DOWNLOAD_HANDLERS": f"set {_OWN_IDENTITY} to use another handler",
}
_UNDECLARED: Final = (
    "spider %r has no declared sources, so it may request nothing; to let it follow links, set %s"
)


class Addon:
    """Makes a Scrapy project polite, whatever its other settings or its command line are."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the add-on for one crawler."""
        return cls(crawler)

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Set up a log of JSON; end the process with one line if log or reactor cannot be set up.

        The middlewares need asyncio's reactor. Scrapy sets up both before it loads the add-on.
        """
        try:
            _check_log_level(settings)
            if log_format_of(settings) == "json":
                install_json_log(settings)
            cls.check_reactor(settings)
        except OSError as error:
            refuse_to_start(BadSetting(f"the log cannot be written: {error}"), log_file=None)
        except BadSetting as error:
            refuse_to_start(error, log_file=None)

    def update_settings(self, settings: Settings) -> None:
        """Force the demands of the contract, and log each value that is overridden.

        A bad ``WALSH_`` setting ends the process with one line.
        """
        try:
            self.check_reactor(settings)  # a spider's custom_settings count too
            options = Options.from_settings(settings)
            self._check_scope(settings, options)
            musts = self._musts(settings, options)
            _check_identity(settings, options)
        except BadSetting as error:
            refuse_to_start(error, log_file=settings["LOG_FILE"])
        if not options.enabled:
            raise NotConfigured("WALSH_ENABLED is False, so this add-on does nothing")
        for name, value in DELAYS.items():
            _take_over(settings, name, value)
        for name, value in musts.items():
            _force(settings, name, value, _reason(name, options))
        for name, paths in SWITCHED_OFF.items():
            for path in paths:
                settings[name].pop(path, None)
        chain = _CHAIN | HTTP_CACHE if musts["HTTPCACHE_ENABLED"] else _CHAIN
        given = settings.getwithbase("DOWNLOAD_HANDLERS")
        others = {scheme: None for scheme in given if scheme not in SCHEMES}
        handlers = HANDLERS if options.is_walsh_research else {}
        for name, components in (
            ("DOWNLOADER_MIDDLEWARES", chain),
            ("SPIDER_MIDDLEWARES", SPIDER_GATES),
            ("EXTENSIONS", EXTENSIONS),
            ("DOWNLOAD_HANDLERS", others | handlers),
        ):
            _force_components(settings, name, components)
        if handlers:
            _keep_handlers(settings, _reason("DOWNLOAD_HANDLERS", options))
        else:
            _give_handlers(settings)

    @staticmethod
    def check_reactor(settings: BaseSettings) -> None:
        """Raise BadSetting for another reactor than asyncio's, or for none."""
        if not settings.getbool("WALSH_ENABLED", default=True):
            return
        if not settings.getbool("TWISTED_REACTOR_ENABLED"):
            raise bad_setting("TWISTED_REACTOR_ENABLED", False, "True, Scrapy's default")
        if problem := reactor_problem(settings):
            raise problem

    def _check_scope(self, settings: Settings, options: Options) -> None:
        """Refuse a spider that could request nothing; the message has the settings for it."""
        spider = self._crawler.spidercls if self._crawler else DeclaringSpider
        if not options.enabled or options.scope == "any" or issubclass(spider, DeclaringSpider):
            return
        lines = ['WALSH_SCOPE = "any"']
        if options.is_walsh_research:
            lines = [*proposed_identity(settings), *lines]
        raise BadSetting(_UNDECLARED % (spider.name, ", ".join(lines)))

    @staticmethod
    def _musts(settings: Settings, options: Options) -> dict[str, Any]:
        ceilings = {name: _at_most(settings, name, most) for name, most in CEILINGS.items()}
        serial = SERIAL if options.serial else {}
        theirs = {} if options.is_walsh_research else _kept(settings)
        return {"USER_AGENT": options.user_agent, **MUSTS, **serial, **theirs, **ceilings}


def _check_identity(settings: BaseSettings, options: Options) -> None:
    """Refuse to send the identity of Walsh-Research without the middlewares (R1)."""
    if not options.enabled and identity.UA_TOKEN.lower() in str(settings["USER_AGENT"]).lower():
        raise BadSetting(
            f"USER_AGENT names {identity.UA_TOKEN}, and WALSH_ENABLED is False: that name is not "
            "sent without the middlewares; remove one of the two settings"
        )


def _check_log_level(settings: BaseSettings) -> None:
    level, names = settings["LOG_LEVEL"], logging.getLevelNamesMapping()
    if not isinstance(level, int) and level not in names:
        raise bad_setting("LOG_LEVEL", level, f"one of {', '.join(names)}")


def _at_most(settings: Settings, name: str, most: float) -> float:
    """Return a number from the settings, at most ``most``; so is a 0 that means "no limit"."""
    given = number_of(settings, name, most, low=0.0, high=math.inf)
    number = min(given or (0 if name == "REDIRECT_MAX_TIMES" else most), most)
    return int(number) if number == int(number) else number


def _kept(settings: Settings) -> dict[str, Any]:
    """Return the settings of retries and HTTP cache that a bot with its own identity keeps.

    A refusal is neither retried by Scrapy nor kept: it is about the time of the next request, not
    about the page (R5).
    """
    retried = [int(code) for code in settings.getlist("RETRY_HTTP_CODES")]
    kept: dict[str, Any] = {
        "RETRY_HTTP_CODES": [code for code in retried if code not in RETRIED_STATUSES],
        "HTTPCACHE_ENABLED": settings.getbool("HTTPCACHE_ENABLED"),
    }
    if kept["HTTPCACHE_ENABLED"]:
        uncached = {int(code) for code in settings.getlist("HTTPCACHE_IGNORE_HTTP_CODES")}
        settings.set("HTTPCACHE_IGNORE_HTTP_CODES", sorted(uncached | RETRIED_STATUSES), FORCED)
    return kept


class _Kept(ForcedSetting):
    """A forced value, which names each value that an add-on after ours sets in vain."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(value, FORCED)
        self._name = name
        self._reason = reason

    def set(self, value: Any, priority: int) -> None:  # noqa: ANN401 - as Scrapy has it
        """Keep the forced value."""
        if priority < self.priority and not _is_same(value, self.value):
            late = "which an add-on after walsh_scrapy.Addon sets, is ignored"
            _say("%s = %s, %s: %s", self._name, _readable(value), late, self._reason)
        super().set(value, priority)


def _reason(name: str, options: Options) -> str:
    """Return why a value of this setting is ignored, and what to set instead."""
    remedies = REMEDIES_OF_WALSH_RESEARCH if options.is_walsh_research else REMEDIES
    return "; ".join([REASONS[name], *([remedies[name]] if name in remedies else [])])


def _keep_handlers(settings: Settings, reason: str) -> None:
    """Name the handlers that an add-on after this one sets, as a table or one by one."""
    table: BaseSettings = settings["DOWNLOAD_HANDLERS"]
    for scheme in SCHEMES:
        table.attributes[scheme] = _Kept("DOWNLOAD_HANDLERS", HANDLER, reason)
    settings.attributes["DOWNLOAD_HANDLERS"] = _Kept("DOWNLOAD_HANDLERS", table, reason)


def _give_handlers(settings: Settings) -> None:
    """Set our handlers where another bot has none; an add-on after this one may still set another.

    `crawl.network` then logs at the start the lost guarantees.
    """
    table: BaseSettings = settings["DOWNLOAD_HANDLERS"]
    for scheme in SCHEMES:
        if not table.get(scheme):
            table.set(scheme, HANDLER, priority="addon")


def _take_over(settings: Settings, name: str, value: object) -> None:
    """Force a setting whose other values count elsewhere."""
    forced = ForcedSetting(copy(value), FORCED)
    forced.ignored.append(settings.get(name))
    settings.attributes[name] = forced


def _force(settings: Settings, name: str, value: object, reason: str) -> None:
    given, priority = settings.get(name), settings.getpriority(name) or 0
    if priority > 0 and not _is_same(given, value):
        words = (name, _readable(given), _readable(value), reason)
        _say("%s = %s is ignored and %s is used: %s", *words)
    settings.set(name, value, priority=FORCED)
    settings.attributes[name] = _Kept(name, settings[name], reason)


def _force_components(
    settings: Settings, name: str, components: Mapping[str, int | str | None]
) -> None:
    chain: BaseSettings = settings[name]
    changed = list[str]()
    if name in _COMPONENTS:
        _remove_other_names(settings, name, components.keys())
    theirs = dict(chain)  # `get` of the settings takes a None for missing keys
    for component, order in components.items():
        given = theirs.get(component, order)
        if given != order:
            changed.append(f"{component} = {_readable(given)} (instead of {_readable(order)})")
        chain.set(component, order, priority=FORCED)
    if changed:
        _say(
            "%s: this add-on sets some components itself, and ignores %s", name, ", ".join(changed)
        )


def _remove_other_names(settings: BaseSettings, name: str, paths: Collection[str]) -> None:
    """Remove the names of components except their paths: None for one removes a middleware."""
    for table in (settings[name], settings[f"{name}_BASE"]):
        for key in list(table or ()):
            if key not in paths and path_of(key) in paths:
                other = f"{key} = {table[key]}"
                _say("%s: %s is removed: it is another name of a component", name, other)
                del table[key]


def _is_same(given: object, value: object) -> bool:
    """Return True if a setting has a value already, as a text of the command line too."""
    if isinstance(given, BaseSettings):
        given = given.copy_to_dict()
    if isinstance(value, list) and isinstance(given, list | tuple | str):
        codes = given.split(",") if isinstance(given, str) else given
        return [str(code).strip() for code in codes] == [str(code) for code in value]
    if isinstance(value, bool):
        return str(given).lower() in (("1", "true") if value else ("0", "false", "none"))
    return str(given) == str(value)


def _readable(value: object) -> str:
    """Return a value as a person reads it: a class by its name, a long table by its length."""
    if isinstance(value, BaseSettings):
        value = value.copy_to_dict()
    if isinstance(value, Mapping) and len(value) > _FEW:
        return f"a table of {len(value)} entries"
    if isinstance(value, list | tuple) and len(value) > _MANY:
        return f"a list of {len(value)} entries"
    return global_object_name(value) if callable(value) else repr(value)


@cache
def _say(text: str, *values: str) -> None:
    """Log a warning once in a process: several crawls of it have the same settings."""
    logger.warning(text, *values)
