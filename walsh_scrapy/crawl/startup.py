"""The chain of middlewares as one table, and the checks before the first request (decision 22).

The add-on sets all that is checked here. A project that uses single middlewares sets it itself. If
a setting must be changed, the process ends at the start with all problems, and nothing is sent.

The order of the middlewares is that of the contract: the URL as it is sent first, then opt-outs
before scope, scope before a host name is resolved, all of these before robots.txt, and pacing last
before the wire.
"""

from __future__ import annotations

import math
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from walsh_scrapy import identity
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.options import BadSetting, Options, bad_setting, number_of, proposed_identity
from walsh_scrapy.policy.backoff import RETRIED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from scrapy.settings import BaseSettings

ADDON: Final = "walsh_scrapy.Addon"
HANDLER: Final = "walsh_scrapy.downloadhandler.DownloadHandler"
SCHEDULER: Final = "walsh_scrapy.scheduler.Scheduler"
DOWNLOADER: Final = "scrapy.core.downloader.Downloader"
REACTOR: Final = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
SCHEMES: Final = ("http", "https")

Problems: TypeAlias = "Iterator[BadSetting]"

_SCRAPYS: Final = "scrapy.downloadermiddlewares"
_SCOPE: Final = "walsh_scrapy.spidermiddlewares.scope.ScopeMiddleware"
_RETRY: Final = f"{_SCRAPYS}.retry.RetryMiddleware"
_REDIRECTS: Final = f"{_SCRAPYS}.redirect.BaseRedirectMiddleware"
_COOKIES: Final = f"{_SCRAPYS}.cookies.CookiesMiddleware"
_IDENTIFYING: Final = (
    f"{_SCRAPYS}.httpauth.HttpAuthMiddleware",
    f"{_SCRAPYS}.useragent.UserAgentMiddleware",
)


class Gate(Enum):
    """A middleware of ours: its order in ``DOWNLOADER_MIDDLEWARES``, and its class there.

    ``denies`` is True if the gate may deny a source. ``replaces`` is the middleware of Scrapy that
    it replaces. A class without a path is in ``walsh_scrapy.downloadermiddlewares``.
    """

    ADDRESS = 1, "addresses.AddressMiddleware"
    DENIALS = 5, "denials.DenialsMiddleware"
    BLOCKLIST = 10, "blocklist.BlocklistMiddleware", True
    SCOPE = 15, _SCOPE, True
    PRIVATEHOSTS = 20, "privatehosts.PrivateHostsMiddleware", True
    ROBOTS = 100, "robots.RobotsMiddleware", True, "robotstxt.RobotsTxtMiddleware"
    BACKOFF = 549, "backoff.BackoffMiddleware"
    CONDITIONAL = 560, "conditional.ConditionalMiddleware"
    COMPRESSION = (
        590,
        "compression.CompressionMiddleware",
        False,
        "httpcompression.HttpCompressionMiddleware",
    )
    REDIRECT = 600, "redirect.RedirectMiddleware", False, "redirect.RedirectMiddleware"
    IDENTITY = 860, "identity.IdentityMiddleware"
    PACING = 890, "pacing.PacingMiddleware"

    def __init__(self, order: int, path: str, denies: bool = False, replaces: str = "") -> None:
        is_whole = path.startswith("walsh_scrapy.")
        self.order = order
        self.path = path if is_whole else f"walsh_scrapy.downloadermiddlewares.{path}"
        self.denies = denies
        self.replaces = replaces and f"{_SCRAPYS}.{replaces}"

    @property
    def label(self) -> str:
        """The name of the middleware in stats and in ``Denied``."""
        return self.name.lower()


#: Middlewares of Scrapy that ours replace.
REPLACED: Final = tuple(gate.replaces for gate in Gate if gate.replaces)
#: In ``SPIDER_MIDDLEWARES``. ScopeMiddleware is both a downloader and a spider middleware.
SPIDER_GATES: Final = {
    Gate.SCOPE.path: 20,
    "walsh_scrapy.spidermiddlewares.firstseen.FirstSeenMiddleware": 30,
}
#: The gates that may deny a source, by their names in the stats.
DENYING_GATES: Final = tuple(gate.label for gate in Gate if gate.denies)


def gate_names(found: Iterable[str]) -> list[str]:
    """Return the names of the gates that deny, then those that are found of other gates."""
    return [*DENYING_GATES, *sorted(set(found).difference(DENYING_GATES))]


# ---- the middlewares in force ----


def chain_of(settings: BaseSettings) -> list[type]:
    """Return the downloader middlewares of a project, from the engine to the wire."""
    components = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    return [load_object(each) for each in build_component_list(components)]


def in_force(settings: BaseSettings, gate: Gate) -> bool:
    """Return True if our middleware, or a subclass of it, is among a project's middlewares."""
    return bool(_places(chain_of(settings), gate.path))


def _places(chain: list[type], *paths: str) -> list[int]:
    """Return where in the chain the classes with these paths are, or subclasses of them."""
    return [
        number
        for number, kind in enumerate(chain)
        if not {*paths}.isdisjoint(map(global_object_name, kind.__mro__))
    ]


def path_of(component: Any) -> str:  # noqa: ANN401 - a path or a class
    """Return the path of the class that a component names; "" if it cannot be imported.

    A component has many names: its path, the class itself, a module that imports it. Scrapy keeps
    the last one, so a second name with None in its place removes a middleware.
    """
    try:
        return global_object_name(load_object(component))
    except Exception:  # noqa: BLE001 - any module may be named; Scrapy reports its problem
        return ""


def check_gates(settings: BaseSettings) -> None:
    """Raise BadSetting if the add-on is missing or off, so that no middleware is in force."""
    if not has_addon(settings):
        raise BadSetting(
            "ADDONS or WALSH_ENABLED switches the middlewares off, and no request is sent without "
            f'them; set ADDONS = {{"{ADDON}": 500}}'
        )


def has_addon(settings: BaseSettings) -> bool:
    """Return True if the add-on is in force."""
    is_there = any(map(is_addon, build_component_list(settings["ADDONS"])))
    return is_there and Options.from_settings(settings).enabled


def is_addon(component: str | type) -> bool:
    """Return True if a component of ``ADDONS`` is the add-on or a subclass, by whatever name."""
    kind = load_object(component)
    return isinstance(kind, type) and issubclass(kind, load_object(ADDON))


# ---- checks ----


def check_start(settings: BaseSettings, others: Iterable[BadSetting] = ()) -> None:
    """End the process if a setting must be changed, before anything is sent.

    All settings are checked together, so an operator reads all errors at once. ``others`` were
    found elsewhere.
    """
    errors = list(dict.fromkeys(map(str, chain(start_problems(settings), others))))
    if errors:
        lines = [f"{len(errors)} settings must be changed first:", *errors]
        told = errors[0] if len(errors) == 1 else "\n  - ".join(lines)
        refuse_to_start(BadSetting(told), log_file=settings["LOG_FILE"])


def start_problems(settings: BaseSettings) -> Problems:
    """Yield an error for each setting that must be changed."""
    try:
        Options.from_settings(settings)
    except BadSetting as error:
        yield error
    else:
        yield from component_problems(settings)
    if problem := reactor_problem(settings):
        yield problem
    middlewares = chain_of(settings)
    yield from _order_problems(settings, middlewares)
    for gate, problems in (
        (Gate.ROBOTS, _robots_problems(settings, middlewares)),
        (Gate.BACKOFF, _backoff_problems(settings, middlewares)),
        (Gate.REDIRECT, _redirect_problems(middlewares)),
        (Gate.PACING, _pacing_problems(settings)),
    ):
        if _places(middlewares, gate.path):
            yield from problems
    if not _places(middlewares, Gate.IDENTITY.path):
        yield from _identity_problems(settings, middlewares)
    if settings["WALSH_SIGNING_KEY"] and not has_handler(settings):
        yield _signing_problem(settings)


def reactor_problem(settings: BaseSettings) -> BadSetting | None:
    """Return an error if the crawl would run in another reactor than asyncio's."""
    is_other = settings["TWISTED_REACTOR"] != REACTOR
    if is_other and settings.getbool("TWISTED_REACTOR_ENABLED"):
        wanted = f"{REACTOR!r}, Scrapy's default"
        return bad_setting("TWISTED_REACTOR", settings["TWISTED_REACTOR"], wanted)
    return None


def component_problems(settings: BaseSettings) -> Problems:
    """Find components that are not those that the add-on set, if it is in force.

    Another add-on may have changed them since.
    """
    if not has_addon(settings):
        return
    for name, wanted in (
        ("DOWNLOADER_MIDDLEWARES", [gate.path for gate in Gate]),
        ("SPIDER_MIDDLEWARES", sorted(SPIDER_GATES, key=SPIDER_GATES.__getitem__)),
    ):
        components = settings.get_component_priority_dict_with_base(name)
        found = [path_of(each) for each in build_component_list(components)]
        if [path for path in found if path in wanted] != wanted:
            yield _changed(name, f"must have each middleware once, in this order: {_names(wanted)}")
        if others := [path for path in found if path in REPLACED]:
            yield _changed(name, f"has {_names(others)}, which walsh-scrapy replaces")
    for name, path in (("SCHEDULER", SCHEDULER), ("DOWNLOADER", DOWNLOADER)):
        if path_of(settings[name]) != path:
            yield _changed(name, f"is {settings[name]}, and must be {path}")
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    if sorted(key for key in handlers if handlers[key] is not None) != sorted(SCHEMES):
        yield _changed("DOWNLOAD_HANDLERS", "must have http and https, and nothing else")
    yield from _compression_problems(settings)


def _changed(name: str, what: str) -> BadSetting:
    return BadSetting(f"{name} {what}; another add-on changed it after {ADDON}: remove that")


def _names(paths: Collection[str]) -> str:
    return ", ".join(path.rpartition(".")[2] for path in paths)


def _order_problems(settings: BaseSettings, chain: list[type]) -> Problems:
    """Yield an error for each middleware in the wrong order."""
    robots, pacing = Gate.ROBOTS.path, Gate.PACING.path
    # Scrapy makes no such middleware if cookies are switched off.
    cookies = (_COOKIES,) if settings.getbool("COOKIES_ENABLED") else ()
    identifying = (*cookies, *_IDENTIFYING)
    is_listed = "a listed host gets no request, not even for robots.txt"
    is_private = "a private host gets no request, not even for robots.txt"
    is_released = "PacingMiddleware must release the host first"
    for gate, first, then, why in (
        (Gate.BLOCKLIST, (), (robots, pacing), is_listed),
        (Gate.PRIVATEHOSTS, (), (robots, Gate.ROBOTS.replaces), is_private),
        (Gate.ROBOTS, (), (pacing,), "robots.txt must be read before an exchange begins"),
        (Gate.BACKOFF, (), (pacing,), is_released),
        (Gate.CONDITIONAL, (), (pacing,), is_released),
        (Gate.IDENTITY, identifying, (), "it corrects their headers"),
        (Gate.PACING, (_RETRY, _REDIRECTS), (), "it must see every response first"),
    ):
        before = _places(chain, *(first or (gate.path,)))
        after = _places(chain, *(then or (gate.path,)))
        if before and after and before[-1] > after[0]:
            yield BadSetting(
                f"DOWNLOADER_MIDDLEWARES has {chain[after[0]].__name__} before "
                f"{chain[before[-1]].__name__}, but it must come after that: {why}; set the "
                f"order of {_names([gate.path])} to {gate.order}"
            )


def _robots_problems(settings: BaseSettings, chain: list[type]) -> Problems:
    """Find what requests every robots.txt again: Scrapy's middleware, or a subclass of it."""
    places = _places(chain, Gate.ROBOTS.replaces)
    if not settings.getbool("ROBOTSTXT_OBEY") or not places:
        return
    path = global_object_name(chain[places[0]])
    if path == Gate.ROBOTS.replaces:
        yield bad_setting(
            "ROBOTSTXT_OBEY",
            settings["ROBOTSTXT_OBEY"],
            "False with RobotsMiddleware: Scrapy's would request every robots.txt again",
        )
    else:  # the add-on sets ROBOTSTXT_OBEY, so the project cannot
        yield BadSetting(
            f"DOWNLOADER_MIDDLEWARES has {path}, which would request every robots.txt again; "
            "remove it: RobotsMiddleware takes its place"
        )


def _compression_problems(settings: BaseSettings) -> Problems:
    """Find out that bodies are not unpacked: a feed may come as gzip."""
    if not settings.getbool("COMPRESSION_ENABLED"):
        yield bad_setting(
            "COMPRESSION_ENABLED",
            settings["COMPRESSION_ENABLED"],
            "True: a compressed feed could not be read",
        )


def _backoff_problems(settings: BaseSettings, chain: list[type]) -> Problems:
    """Find settings with which a request is retried before BackoffMiddleware sees its response."""
    if not _places(chain, Gate.PACING.path):
        yield BadSetting(
            "DOWNLOADER_MIDDLEWARES has BackoffMiddleware without PacingMiddleware, which lets "
            f"a host wait after a refusal; set the order of that to {Gate.PACING.order}"
        )
    codes = [int(code) for code in settings.getlist("RETRY_HTTP_CODES")]
    is_retried = settings.getbool("RETRY_ENABLED") and _places(chain, _RETRY)
    if is_retried and RETRIED_STATUSES.intersection(codes):
        rest = [code for code in codes if code not in RETRIED_STATUSES]
        yield bad_setting(
            "RETRY_HTTP_CODES",
            codes,
            f"without 429 and 503, after which RetryMiddleware would retry at once; set {rest}",
        )


def _redirect_problems(chain: list[type]) -> Problems:
    own = _places(chain, Gate.REDIRECT.path)
    for number in _places(chain, Gate.REDIRECT.replaces):
        if number not in own:
            yield BadSetting(
                f"DOWNLOADER_MIDDLEWARES has {chain[number].__name__} and walsh-scrapy's, "
                "but must have one that follows redirects: set "
                f'"{global_object_name(chain[number])}" to None'
            )


def _pacing_problems(settings: BaseSettings) -> Problems:
    """Find settings that delay a request after its host was taken, or give it no end."""
    instead = "0 with PacingMiddleware, which keeps the delays; set WALSH_MIN_INTERVAL"
    delays = {"DOWNLOAD_DELAY": number_of(settings, "DOWNLOAD_DELAY", 0.0, low=0.0, high=math.inf)}
    for name, slot in settings.getdict("DOWNLOAD_SLOTS").items():
        delays[f"DOWNLOAD_SLOTS[{name!r}]['delay']"] = slot.get("delay", 0.0)
    for name, delay in delays.items():
        if delay:
            yield bad_setting(name, delay, instead)
    if settings.getbool("AUTOTHROTTLE_ENABLED"):
        yield bad_setting(
            "AUTOTHROTTLE_ENABLED",
            True,
            "False with PacingMiddleware, which keeps the delays, longer ones for slow hosts",
        )
    if not number_of(settings, "DOWNLOAD_TIMEOUT", 0.0, low=0.0, high=math.inf):
        yield bad_setting("DOWNLOAD_TIMEOUT", 0, "above 0: a host is busy for that long")


def _identity_problems(settings: BaseSettings, chain: list[type]) -> Problems:
    """Without IdentityMiddleware ``USER_AGENT`` is sent (R1)."""
    sent, named = str(settings["USER_AGENT"]), settings["WALSH_USER_AGENT"]
    token = settings["WALSH_UA_TOKEN"] or identity.UA_TOKEN
    if _places(chain, Gate.ROBOTS.path) and token.lower() not in sent.lower():
        lines = [*proposed_identity(settings), "USER_AGENT = WALSH_USER_AGENT"]
        yield bad_setting(
            "USER_AGENT",
            sent,
            f"a line that holds {token!r}, the name whose rules are obeyed (WALSH_UA_TOKEN); set "
            f"{', '.join(lines)} (IdentityMiddleware at 860 sets the last one too)",
        )
    elif named and named.strip() != sent:
        yield bad_setting(
            "USER_AGENT",
            sent,
            f"WALSH_USER_AGENT, {named!r}, because nothing else sends that line; "
            "IdentityMiddleware at 860 sets it too",
        )


def has_handler(settings: BaseSettings) -> bool:
    """Return True if our handler sends the requests over https."""
    handler = settings.getwithbase("DOWNLOAD_HANDLERS").get("https")
    return bool(path_of(handler)) and issubclass(load_object(handler), load_object(HANDLER))


def _signing_problem(settings: BaseSettings) -> BadSetting:
    handler = settings.getwithbase("DOWNLOAD_HANDLERS").get("https")
    why = "WALSH_SIGNING_KEY, because no other signs requests"
    wanted = f'{{"https": "{HANDLER}"}} with {why}'
    return bad_setting("DOWNLOAD_HANDLERS", {"https": handler}, wanted)
