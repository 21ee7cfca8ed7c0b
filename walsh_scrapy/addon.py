"""The add-on: middlewares, scheduler and forced settings for any Scrapy project.

ADDONS = {"walsh_scrapy.Addon": 500}
"""

from __future__ import annotations

import logging
import math
import os
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings

from walsh_scrapy import identity
from walsh_scrapy.crawl.processlog import install_json_log
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.startup import (
    DOWNLOADER,
    GATES,
    HANDLER,
    SCHEDULER,
    SPIDER_GATES,
    Kind,
    kind_of,
    reactor_problem,
)
from walsh_scrapy.options import (
    BadSetting,
    ForcedSetting,
    Options,
    bad_setting,
    identity_of,
    is_enabled,
    log_format_of,
    no_identity,
    number_of,
    own_user_agent,
)
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.pacing import MAX_TIMEOUT_SECONDS
from walsh_scrapy.policy.urls import SCHEMES
from walsh_scrapy.policy.wording import cut
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

logger = logging.getLogger(__name__)

#: A priority above the command line (40), because no operator may override a MUST.
FORCED: Final = 100

#: The extensions of each kind of crawl.
EXTENSIONS: Final[dict[Kind, dict[str, int]]] = {
    Kind.DECLARED: {
        "walsh_scrapy.feeds.sourcevisit.MediaTypes": 0,
        "walsh_scrapy.extensions.summary.Summary": 0,
    },
    Kind.OWN: {"walsh_scrapy.extensions.summary.Summary": 0},
}
#: The handlers of each kind of crawl. Both send a request once (R5).
HANDLERS: Final = {
    Kind.DECLARED: HANDLER,
    Kind.OWN: "walsh_scrapy.http11handler.HTTP11DownloadHandler",
}
#: The defaults of a project's own crawl. The defaults of `Options` are those of a declared crawl.
OWN_DEFAULTS: Final[dict[str, Any]] = {"WALSH_SCOPE": "any", "WALSH_SERIAL": False}
#: 15 MiB.
MAX_BODY_BYTES: Final = 15 * 1024 * 1024
#: The time limit of a request of a declared crawl, from the name lookup to the last byte.
DECLARED_TIMEOUT_SECONDS: Final = 60
_MAX_SHOWN_CHARACTERS: Final = 200
#: The environment variable of the fixture ``walsh_no_waiting``.
NO_WAITING: Final = "WALSH_NO_WAITING"

#: The value of each setting in every crawl, and why the value of a project is ignored.
MUSTS: Final[dict[str, tuple[Any, str]]] = {
    "SCHEDULER": (SCHEDULER, "the scheduler of this add-on waits until a host may be requested"),
    "DOWNLOADER": (DOWNLOADER, "the middlewares of this add-on need the downloader of Scrapy"),
    "ROBOTSTXT_OBEY": (True, "this add-on always obeys robots.txt"),
    "CONCURRENT_REQUESTS_PER_DOMAIN": (1, "a host gets one request at a time"),
}
#: Further settings of declared crawls.
DECLARED_MUSTS: Final[dict[str, tuple[Any, str]]] = {
    "ROBOTSTXT_USER_AGENT": (None, "WALSH_UA_TOKEN names your bot in robots.txt"),
    "ROBOTSTXT_PARSER": (
        "scrapy.robotstxt.ProtegoRobotParser",
        "this add-on reads robots.txt itself, by RFC 9309",
    ),
    "COMPRESSION_ENABLED": (True, "this add-on reads compressed documents"),
    "COOKIES_ENABLED": (False, "this add-on never sends cookies"),
    "REFERER_ENABLED": (False, "this add-on never sends a Referer"),
    "METAREFRESH_ENABLED": (False, "this add-on does not follow the refresh of a page"),
    "HTTPCACHE_ENABLED": (False, "this add-on decides whether a cache may answer"),
    "TELNETCONSOLE_ENABLED": (False, "nobody may control a crawl from outside"),
    "REMOTE_CONTROL_ENABLED": (False, "nobody may control a crawl from outside"),
    "DOWNLOAD_VERIFY_CERTIFICATES": (True, "this add-on checks every certificate"),
}
#: RetryMiddleware of Scrapy retries these under the Walsh-Research identity.
RETRIED_BY_SCRAPY: Final = [500, 502, 504, 522, 524, 408]
_WHO_RETRIES: Final = "BackoffMiddleware retries 429 and 503, after the waits of their hosts"
SERIAL: Final = {"CONCURRENT_REQUESTS": (1, "requests are sent one at a time")}
#: `crawl.delays` keeps the delays of these: in the downloader they would delay a request whose
#: exchange has begun.
DELAYS: Final[dict[str, Any]] = {
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_SLOTS": {},
    "AUTOTHROTTLE_ENABLED": False,
}
#: The maximum of each setting, by the kind of crawl. A lower value stays; 0 means no limit.
CEILINGS: Final[dict[Kind, dict[str, int]]] = {
    Kind.DECLARED: {
        "DOWNLOAD_MAXSIZE": MAX_BODY_BYTES,
        "DOWNLOAD_WARNSIZE": MAX_BODY_BYTES,
        "DOWNLOAD_TIMEOUT": DECLARED_TIMEOUT_SECONDS,
        "REDIRECT_MAX_TIMES": 5,
    },
    Kind.OWN: {"DOWNLOAD_TIMEOUT": MAX_TIMEOUT_SECONDS},
}
#: The components that forced settings of declared crawls switch off. Scrapy would import each of
#: them to find that out, and with them an HTTP client and a web server.
SWITCHED_OFF: Final = {
    "DOWNLOADER_MIDDLEWARES_BASE": ("scrapy.downloadermiddlewares.cookies.CookiesMiddleware",),
    "EXTENSIONS_BASE": (
        "scrapy.extensions.remote_control.RemoteControl",
        "scrapy.extensions.telnet.TelnetConsole",
        "scrapy.extensions.throttle.AutoThrottle",
    ),
}
#: The cache of another bot answers before PacingMiddleware, so a copy begins no exchange (R4).
HTTP_CACHE: Final = {"scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware": 870}
#: The downloader middlewares of each kind, and those of Scrapy that they replace.
CHAINS: Final[dict[Kind, dict[str, int | None]]] = {
    kind: {gate.path: gate.order for gate in gates}
    | {gate.replaced: None for gate in gates if gate.replaced}
    for kind, gates in GATES.items()
}
_FIXED_COMPONENT: Final = "this add-on sets this component itself"
_FIXED_HANDLER: Final = "Walsh-Research sends its requests by the handler of this add-on"
_SERIAL_IS_OPTIONAL: Final = "set WALSH_SERIAL = False to crawl several hosts at once"
#: What a bot with its own identity may choose: the rules against it are those of Walsh-Research.
_CHOICES: Final = ("CONCURRENT_REQUESTS", "HTTPCACHE_ENABLED", "DOWNLOAD_HANDLERS")
_CHOICE: Final = "set your own WALSH_USER_AGENT and WALSH_UA_TOKEN to choose it"


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
        """Set up a log of JSON, because Scrapy logs its first lines before it loads the add-on.

        A bad setting ends the process with one line.
        """
        try:
            if log_format_of(settings) == "json":
                install_json_log(settings)
            cls.check_reactor(settings)
        except BadSetting as error:
            refuse_to_start(error, log_file=None)

    def update_settings(self, settings: Settings) -> None:
        """Force the settings and components of this add-on, and log each value that is ignored.

        A bad ``WALSH_`` setting ends the process with one line.
        """
        # There is no crawler if only settings are checked: commands crawl what is declared.
        spidercls = self._crawler.spidercls if self._crawler else DeclaringSpider
        try:
            self.check_reactor(settings)  # a spider may have another one in its custom_settings
            if not is_enabled(settings):
                _check_disabled(settings)
                raise NotConfigured("WALSH_ENABLED is False, so this add-on does nothing")
            kind = set_kind(settings, spidercls)
            if kind is Kind.OWN and _waits_for_nothing():
                raise NotConfigured(f"{NO_WAITING} is set: this test waits for no host")
            options = Options.from_settings(settings)
            forced = forced_settings(settings, options, kind)
        except BadSetting as error:
            refuse_to_start(error, log_file=settings["LOG_FILE"])
        for name, value in DELAYS.items():
            _force(settings, name, value)
        for name, (value, reason) in forced.items():
            _force(settings, name, value, name, _advise(name, reason, options))
        _set_components(settings, kind)
        _set_handlers(settings, options, kind)

    @staticmethod
    def check_reactor(settings: BaseSettings) -> None:
        """Raise BadSetting for another reactor than asyncio's, or for none."""
        if not settings.getbool("WALSH_ENABLED", default=True):
            return
        if not settings.getbool("TWISTED_REACTOR_ENABLED"):
            raise bad_setting("TWISTED_REACTOR_ENABLED", False, "True, Scrapy's default")
        if problem := reactor_problem(settings):
            raise problem


def set_kind(settings: BaseSettings, spidercls: type[Spider]) -> Kind:
    """Return the kind of a crawl, and set its identity, and what the project leaves to its kind.

    Raises BadSetting for a crawl without an identity, for a spider without declared sources under
    the Walsh-Research identity, and for one that may request declared sources only.
    """
    kind = kind_of(spidercls, settings)
    bot = identity_of(settings, spidercls)
    if bot is None:
        raise no_identity(settings)
    if kind is Kind.OWN and settings["WALSH_SCOPE"] == "declared":
        expected = f"'any', because spider {spidercls.name!r} has no declared sources"
        raise bad_setting("WALSH_SCOPE", "declared", expected)
    if own_user_agent(settings, spidercls)[1] == bot.user_agent:
        # What Scrapy would send comes from elsewhere: there is nothing to warn of.
        settings.set("USER_AGENT", bot.user_agent, priority="cmdline")
    for name, value in bot._asdict().items():
        settings.set(f"WALSH_{name.upper()}", value, priority=FORCED)
    for name, value in OWN_DEFAULTS.items():
        if kind is Kind.OWN and settings[name] is None:
            settings.set(name, value, priority="addon")
    return kind


def forced_settings(settings: Settings, options: Options, kind: Kind) -> dict[str, tuple[Any, str]]:
    """Return the value of each forced setting, and why another one is ignored.

    Every bot but Walsh-Research keeps its retries and its HTTP cache, but not for 429 and 503: a
    refusal is about the time of the next request, not about the page (R5). Raises BadSetting.
    """
    reason = "this is the name of your bot, also in robots.txt"
    forced = {"USER_AGENT": (options.user_agent, reason), **MUSTS}
    if kind is Kind.DECLARED:
        forced |= DECLARED_MUSTS
    if options.serial:
        forced |= SERIAL
    for name, maximum in CEILINGS[kind].items():
        number = number_of(settings, name, maximum, low=0.0, high=math.inf)
        is_unlimited = number == 0 and name != "REDIRECT_MAX_TIMES"
        value = maximum if number >= maximum or is_unlimited else settings[name]
        reason = f"0 means no limit, and the maximum is {maximum}"
        forced[name] = (value, reason if is_unlimited else f"the maximum is {maximum}")
    if options.is_walsh_research:
        return forced | {"RETRY_HTTP_CODES": (RETRIED_BY_SCRAPY, _WHO_RETRIES)}
    codes = [int(code) for code in settings.getlist("RETRY_HTTP_CODES")]
    codes = [code for code in codes if code not in RETRIED_STATUSES]
    forced["RETRY_HTTP_CODES"] = (codes, _WHO_RETRIES)
    if settings.getbool("HTTPCACHE_ENABLED"):
        uncached = {int(code) for code in settings.getlist("HTTPCACHE_IGNORE_HTTP_CODES")}
        uncached |= RETRIED_STATUSES
        settings.set("HTTPCACHE_IGNORE_HTTP_CODES", sorted(uncached), FORCED)
        forced.pop("HTTPCACHE_ENABLED", None)
    return forced


def _waits_for_nothing() -> bool:
    """Return True in a test with the fixture ``walsh_no_waiting``. Raises BadSetting elsewhere."""
    if NO_WAITING not in os.environ:
        return False
    if "PYTEST_CURRENT_TEST" not in os.environ:
        raise BadSetting(
            f"the environment variable {NO_WAITING} switches this add-on off, and is for tests "
            "alone: remove it"
        )
    return True


def _check_disabled(settings: BaseSettings) -> None:
    """Raise BadSetting if Walsh-Research would be sent as User-Agent without the middlewares."""
    if identity.UA_TOKEN.lower() in str(settings["USER_AGENT"]).lower():
        raise BadSetting(
            f"USER_AGENT names {identity.UA_TOKEN}, and WALSH_ENABLED is False: that name is not "
            "sent without the middlewares; remove one of the two settings"
        )


def _advise(name: str, reason: str, options: Options) -> str:
    """Add to a reason the setting that allows the ignored value, if there is one."""
    if options.is_walsh_research:
        return f"{reason}; {_CHOICE}" if name in _CHOICES else reason
    return f"{reason}; {_SERIAL_IS_OPTIONAL}" if name in SERIAL else reason


def _set_components(settings: BaseSettings, kind: Kind) -> None:
    """Force the components of a kind of crawl, and remove those that are switched off."""
    if kind is Kind.DECLARED:
        for table, paths in SWITCHED_OFF.items():
            for path in paths:
                settings[table].pop(path, None)
    cache = HTTP_CACHE if settings["HTTPCACHE_ENABLED"] else {}
    for table, components in (
        ("DOWNLOADER_MIDDLEWARES", CHAINS[kind] | cache),
        ("SPIDER_MIDDLEWARES", SPIDER_GATES[kind]),
        ("EXTENSIONS", EXTENSIONS[kind]),
    ):
        for path, order in components.items():
            _force(settings[table], path, order, f"{table}[{path!r}]", _FIXED_COMPONENT)


def _set_handlers(settings: Settings, options: Options, kind: Kind) -> None:
    """Set the download handlers for http and https; in a declared crawl remove all others.

    A bot with its own identity may have other handlers, also by an add-on after this one.
    `crawl.network` then logs the promises that these handlers must keep in a declared crawl.
    """
    name = "DOWNLOAD_HANDLERS"
    handlers: BaseSettings = settings[name]
    if kind is Kind.DECLARED:
        for scheme in settings.getwithbase(name):
            if scheme not in SCHEMES:
                _force(handlers, scheme, None, f"{name}[{scheme!r}]", _FIXED_COMPONENT)
    if not options.is_walsh_research:
        for scheme in SCHEMES:
            if not handlers.get(scheme):
                handlers.set(scheme, HANDLERS[kind], priority="addon")
        return
    reason = _advise(name, _FIXED_HANDLER, options)
    for scheme in SCHEMES:
        _force(handlers, scheme, HANDLER, f"{name}[{scheme!r}]", reason)
    settings.attributes[name] = _forced_setting(handlers, name, reason)


def _force(
    settings: BaseSettings, key: str, value: object, name: str = "", reason: str = ""
) -> None:
    """Force a setting, or an entry of a table. Log other values if there is a ``reason``.

    The key becomes the last one of its table: Scrapy uses the last name of a component that has
    several names.
    """
    previous = settings.attributes.pop(key, None)
    setting = _forced_setting(copy(value), name, reason)
    settings.attributes[key] = setting
    if previous is not None and previous.priority > 0:
        setting.set(previous.value, previous.priority)


def _forced_setting(value: object, name: str, reason: str) -> ForcedSetting:
    def report(ignored: object) -> None:
        if reason and not _is_same(ignored, value):
            _log_ignored(name, _show(ignored), _show(value), reason)

    return ForcedSetting(value, FORCED, report)


def _is_same(ignored: object, value: object) -> bool:
    """Return True if two values are the same; the ignored one may come from the command line."""
    if isinstance(value, list):
        codes = ignored.split(",") if isinstance(ignored, str) else ignored
        return isinstance(codes, list | tuple) and [int(code) for code in codes] == value
    if isinstance(value, bool):
        return str(ignored).lower() in (("1", "true") if value else ("0", "false", "none"))
    return str(ignored) == str(value)


def _show(value: object) -> str:
    if isinstance(value, BaseSettings):
        value = value.copy_to_dict()
    return cut(repr(value), _MAX_SHOWN_CHARACTERS)


@cache
def _log_ignored(name: str, ignored: str, value: str, reason: str) -> None:
    """Log a warning once in a process: its crawls have the same settings."""
    logger.warning("%s = %s is ignored and %s is used: %s", name, ignored, value, reason)
