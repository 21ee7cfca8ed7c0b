"""The start of a crawl: its kind, the middlewares of each kind, the checks of settings and state.

Their order is the order of the rules: opt-outs before scope, scope before a host name is resolved,
all of these before robots.txt, and pacing directly before the download.

The add-on sets all that is checked here. A project that uses single middlewares sets it itself. If
a setting must be changed, the process ends before the first request, with all problems.

Two bots on one state wait for each other's delays and holds, and visit each other's sources, so
each of them should have a state of its own. The bots that one project declares are no accident: its
settings may name one, and each of its spiders another.

A crawl with a wrong `WALSH_STATE_URL` begins a new state, and visits every source again. A note in
its folder, ``.scrapy/walsh-state``, has the id of the state, and tells such a state from the first
one of a project. A state that is not new may have another id for good reasons (it was moved, or a
copy of it was noticed), so its note is renewed without a word.
"""

from __future__ import annotations

import logging
import math
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from scrapy.spiderloader import get_spider_loader
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings
from scrapy.utils.python import global_object_name

from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.files import atomic_file
from walsh_scrapy.options import (
    WALSH_RESEARCH,
    BadSetting,
    Options,
    bad_setting,
    identity_of,
    is_enabled,
    no_identity,
    own_user_agent,
)
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.useragents import newest_of_others
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scrapy import Spider
    from scrapy.settings import BaseSettings

    from walsh_scrapy.crawl.context import Context

logger = logging.getLogger(__name__)

ADDON: Final = "walsh_scrapy.Addon"
HANDLER: Final = "walsh_scrapy.downloadhandler.DownloadHandler"
SCHEDULER: Final = "walsh_scrapy.scheduler.Scheduler"
DOWNLOADER: Final = "scrapy.core.downloader.Downloader"
REACTOR: Final = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

_UNDECLARED: Final = (
    "spider {!r} has no declared sources, and Walsh-Research requests nothing else; to crawl under "
    "the name of your own bot, set WALSH_USER_AGENT and WALSH_UA_TOKEN to it"
)
_OURS: Final = "walsh_scrapy.downloadermiddlewares"
#: The feed crawler, whose middlewares are in declared crawls only.
_FEEDS: Final = "walsh_scrapy.feeds"
_SCRAPYS: Final = "scrapy.downloadermiddlewares"
_RETRY: Final = f"{_SCRAPYS}.retry.RetryMiddleware"
_REDIRECT: Final = f"{_SCRAPYS}.redirect.RedirectMiddleware"
_COOKIES: Final = f"{_SCRAPYS}.cookies.CookiesMiddleware"
_ROBOTS: Final = f"{_SCRAPYS}.robotstxt.RobotsTxtMiddleware"
#: Settings without which Scrapy does not build a middleware.
_SWITCHES: Final = {
    "COOKIES_ENABLED": _COOKIES,
    "RETRY_ENABLED": _RETRY,
    "ROBOTSTXT_OBEY": _ROBOTS,
}


class Kind(Enum):
    """Whose crawl it is (decision 47).

    A declared crawl requests the sources that its spider declares, and keeps the whole contract
    under any name. Any other crawl is its project's own, under the name of the project's bot: it
    keeps what site owners ask for, and all else is the project's.
    """

    DECLARED = "declared"
    OWN = "own"


def kind_of(spidercls: type[Spider], settings: BaseSettings) -> Kind:
    """Return the kind of a crawl of a spider of this class.

    Raises BadSetting for a spider without declared sources under the Walsh-Research identity, and
    the errors of ``identity_of``.
    """
    if issubclass(spidercls, DeclaringSpider):
        return Kind.DECLARED
    if identity_of(settings, spidercls) == WALSH_RESEARCH:
        raise BadSetting(_UNDECLARED.format(spidercls.name))
    return Kind.OWN


class Gate(Enum):
    """A middleware of this add-on: its order and its path in ``DOWNLOADER_MIDDLEWARES``.

    ``replaced`` is the middleware of Scrapy that it replaces.
    """

    ADDRESS = 1, f"{_OURS}.addresses.AddressMiddleware"
    DENIALS = 5, f"{_OURS}.denials.DenialsMiddleware"
    BLOCKLIST = 10, f"{_OURS}.blocklist.BlocklistMiddleware"
    SCOPE = 15, f"{_FEEDS}.scope.ScopeMiddleware"
    PRIVATEHOSTS = 20, f"{_OURS}.privatehosts.PrivateHostsMiddleware"
    ROBOTS = 100, f"{_OURS}.robots.RobotsMiddleware", _ROBOTS
    BACKOFF = 549, f"{_OURS}.backoff.BackoffMiddleware"
    CONDITIONAL = 560, f"{_FEEDS}.conditional.ConditionalMiddleware"
    COMPRESSION = (
        590,
        f"{_OURS}.compression.CompressionMiddleware",
        f"{_SCRAPYS}.httpcompression.HttpCompressionMiddleware",
    )
    REDIRECT = 600, f"{_OURS}.redirect.RedirectMiddleware", _REDIRECT
    IDENTITY = 860, f"{_OURS}.identity.IdentityMiddleware"
    PACING = 890, f"{_OURS}.pacing.PacingMiddleware"

    def __init__(self, order: int, path: str, replaced: str | None = None) -> None:
        self.order = order
        self.path = path
        self.replaced = replaced

    def __str__(self) -> str:
        return f"{self.path.rpartition('.')[2]} ({self.order})"


#: The gates of each kind of crawl, in their order.
GATES: Final = {
    Kind.DECLARED: tuple(Gate),
    Kind.OWN: tuple(
        gate for gate in Gate if gate not in (Gate.SCOPE, Gate.CONDITIONAL, Gate.COMPRESSION)
    ),
}
#: In ``SPIDER_MIDDLEWARES``. ScopeMiddleware is both a downloader and a spider middleware.
SPIDER_GATES: Final[dict[Kind, dict[str, int]]] = {
    Kind.DECLARED: {
        Gate.SCOPE.path: 20,
        f"{_FEEDS}.firstseen.FirstSeenMiddleware": 30,
    },
    Kind.OWN: {"walsh_scrapy.spidermiddlewares.links.LinksMiddleware": 20},
}
#: Middlewares of Scrapy that must come before a middleware of this add-on: it corrects their
#: headers, or must see every response before they do.
_EARLIER: Final = {
    Gate.IDENTITY: (
        _COOKIES,
        f"{_SCRAPYS}.httpauth.HttpAuthMiddleware",
        f"{_SCRAPYS}.useragent.UserAgentMiddleware",
    ),
    Gate.PACING: (_RETRY, f"{_SCRAPYS}.redirect.MetaRefreshMiddleware", _REDIRECT),
}


# ---- the middlewares of a project ----


def middlewares_of(settings: BaseSettings, table: str = "DOWNLOADER_MIDDLEWARES") -> list[type]:
    """Return the middlewares that Scrapy builds, from the engine to the server or the spider."""
    table_with_base = settings.get_component_priority_dict_with_base(table)
    components = build_component_list(table_with_base)
    classes = [load_object(component) for component in components]
    off = [path for name, path in _SWITCHES.items() if not settings.getbool(name)]
    return [kind for kind in classes if not _paths_of(kind).intersection(off)]


def gates_of(settings: BaseSettings) -> frozenset[Gate]:
    """Return the middlewares of this add-on that a project uses, itself or by a subclass."""
    places = _places(middlewares_of(settings))
    return frozenset(gate for gate in Gate if gate.path in places)


def _places(middlewares: list[type]) -> dict[str, int]:
    """Return the places of middlewares by their paths, and by the paths of their base classes."""
    return {
        path: place
        for place, middleware in enumerate(middlewares)
        for path in _paths_of(middleware)
    }


def _paths_of(kind: type) -> set[str]:
    """Return the paths of a class and of its base classes."""
    return {global_object_name(base) for base in kind.__mro__}


def path_of(component: Any) -> str:  # noqa: ANN401 - a path or a class
    """Return the path of the class that a component names; "" if it cannot be imported."""
    try:
        return global_object_name(load_object(component))
    except Exception:  # noqa: BLE001 - any module may be named; Scrapy reports its problem
        return ""


def check_gates(settings: BaseSettings) -> None:
    """Raise BadSetting if the add-on is missing or switched off."""
    if not has_addon(settings):
        raise BadSetting(
            "ADDONS or WALSH_ENABLED switches this add-on off, and no request is sent without "
            f'it; set ADDONS = {{"{ADDON}": 500}}'
        )


def has_addon(settings: BaseSettings) -> bool:
    """Return True if a project has the add-on, and has not switched it off."""
    has_it = any(is_addon(component) for component in build_component_list(settings["ADDONS"]))
    return has_it and is_enabled(settings)


def is_addon(component: str | type) -> bool:
    """Return True if a component of ``ADDONS`` is the add-on or a subclass, by whatever name."""
    kind = load_object(component)
    return isinstance(kind, type) and issubclass(kind, load_object(ADDON))


def has_handler(settings: BaseSettings) -> bool:
    """Return True if the download handler of this add-on sends the requests over https."""
    handler = settings.getwithbase("DOWNLOAD_HANDLERS").get("https")
    return bool(path_of(handler)) and HANDLER in _paths_of(load_object(handler))


# ---- checks ----


def check_start(
    settings: BaseSettings, spidercls: type[Spider], further: Iterable[BadSetting] = ()
) -> None:
    """End the process if a setting must be changed, before anything is sent.

    All settings are checked together, so an operator reads all errors at once. ``further`` are
    errors that the caller found.
    """
    errors: list[str] = []
    for error in (*start_problems(settings, spidercls), *further):
        if str(error) not in errors:
            errors.append(str(error))
    if not errors:
        return
    message = errors[0]
    if len(errors) > 1:
        message = "\n  - ".join([f"{len(errors)} settings must be changed first:", *errors])
    refuse_to_start(BadSetting(message), log_file=settings["LOG_FILE"])


def start_problems(settings: BaseSettings, spidercls: type[Spider]) -> Iterator[BadSetting]:
    """Yield an error for each setting that must be changed."""
    try:
        options = Options.from_settings(settings, spidercls)
        kind = kind_of(spidercls, settings)
    except BadSetting as error:
        yield error
        return
    if problem := reactor_problem(settings):
        yield problem
    if kind is Kind.DECLARED and options.min_interval < 1.0:
        expected = "at least 1 in a crawl of declared sources"
        yield bad_setting("WALSH_MIN_INTERVAL", options.min_interval, expected)
    middlewares = middlewares_of(settings)
    is_complete = has_addon(settings)
    if problem := middlewares_problem(settings, middlewares, kind if is_complete else None):
        yield problem
    if not is_complete:
        yield from _single_problems(settings, spidercls, _places(middlewares), options)
    if options.signing_key and not has_handler(settings):
        handler = settings.getwithbase("DOWNLOAD_HANDLERS").get("https")
        reason = "WALSH_SIGNING_KEY, because no other handler signs requests"
        expected = f'{{"https": "{HANDLER}"}} with {reason}'
        yield bad_setting("DOWNLOAD_HANDLERS", {"https": handler}, expected)


def reactor_problem(settings: BaseSettings) -> BadSetting | None:
    """Return an error if the crawl would run in another reactor than asyncio's."""
    is_other = settings["TWISTED_REACTOR"] != REACTOR
    if is_other and settings.getbool("TWISTED_REACTOR_ENABLED"):
        expected = f"{REACTOR!r}, Scrapy's default"
        return bad_setting("TWISTED_REACTOR", settings["TWISTED_REACTOR"], expected)
    return None


def middlewares_problem(
    settings: BaseSettings, middlewares: list[type], kind: Kind | None
) -> BadSetting | None:
    """Return one error for all middlewares that are missing, superfluous or out of order.

    ``kind`` is the kind of a crawl with the add-on, which set all of its gates: another add-on may
    have changed them since. A crawl without the add-on (None) may use any of them.
    """
    places = _places(middlewares)
    problems: list[str] = []
    if kind is not None:
        paths = [global_object_name(middleware) for middleware in middlewares]
        problems += [
            f"{gate} must be there once" for gate in GATES[kind] if paths.count(gate.path) != 1
        ]
        spider_gates = SPIDER_GATES[kind]
        paths = [
            global_object_name(middleware)
            for middleware in middlewares_of(settings, "SPIDER_MIDDLEWARES")
        ]
        if [path for path in paths if path in spider_gates] != list(spider_gates):
            problems.append(f"SPIDER_MIDDLEWARES must have {spider_gates}")
    if Gate.BACKOFF.path in places and Gate.PACING.path not in places:
        problems.append(f"{Gate.BACKOFF} needs {Gate.PACING}")
    problems += _superfluous(middlewares)
    gates = [gate for gate in Gate if gate.path in places]
    problems += [
        f"{later} must come after {earlier}"
        for earlier, later in pairwise(gates)
        if places[earlier.path] > places[later.path]
    ]
    if Gate.PRIVATEHOSTS in gates and places[Gate.PRIVATEHOSTS.path] > places.get(
        _ROBOTS, math.inf
    ):
        problems.append(f"{Gate.PRIVATEHOSTS} must come before {_ROBOTS}")
    problems += [
        f"{gate} must come after {path}"
        for gate in gates
        for path in _EARLIER.get(gate, ())
        if places.get(path, -1) > places[gate.path]
    ]
    if not problems:
        return None
    remedy = "set each to the order in parentheses"
    if kind is not None and problems == list(_superfluous(middlewares)):
        remedy = "set it to None, as the one of Scrapy"
    elif kind is not None:
        remedy = f"another add-on changed that after {ADDON}: remove it"
    return BadSetting(f"DOWNLOADER_MIDDLEWARES: {'; '.join(problems)}; {remedy}")


def _superfluous(middlewares: list[type]) -> Iterator[str]:
    """Yield a phrase for each middleware that does again what one of this add-on does."""
    places = _places(middlewares)
    for gate in Gate:
        if gate.replaced is None or gate.path not in places:
            continue
        for middleware in middlewares:
            paths = _paths_of(middleware)
            if gate.replaced in paths and gate.path not in paths:
                name = global_object_name(middleware)
                yield f"{name} must be None, because {gate} replaces it"


def _single_problems(
    settings: BaseSettings,
    spidercls: type[Spider],
    places: dict[str, int],
    options: Options,
) -> Iterator[BadSetting]:
    """Yield an error for each setting around single middlewares, which the add-on would force."""
    if Gate.BACKOFF.path in places and _RETRY in places:
        codes = [int(code) for code in settings.getlist("RETRY_HTTP_CODES")]
        allowed = [code for code in codes if code not in RETRIED_STATUSES]
        if allowed != codes:
            expected = f"{allowed}: RetryMiddleware would retry 429 and 503 at once"
            yield bad_setting("RETRY_HTTP_CODES", codes, expected)
    if Gate.PACING.path in places:
        slots = settings.getdict("DOWNLOAD_SLOTS")
        has_slot_delay = any(slot.get("delay") for slot in slots.values())
        for name, is_set, expected in (
            ("DOWNLOAD_DELAY", settings.getfloat("DOWNLOAD_DELAY") > 0, "0"),
            ("DOWNLOAD_SLOTS", has_slot_delay, "without delays"),
            ("AUTOTHROTTLE_ENABLED", settings.getbool("AUTOTHROTTLE_ENABLED"), "False"),
        ):
            if is_set:
                reason = "PacingMiddleware keeps the delays; set WALSH_MIN_INTERVAL"
                yield bad_setting(name, settings[name], f"{expected}: {reason}")
        if not settings.getfloat("DOWNLOAD_TIMEOUT"):
            yield bad_setting("DOWNLOAD_TIMEOUT", 0, "above 0: a host is busy for that long")
    needs_name = bool({Gate.IDENTITY.path, Gate.ROBOTS.path}.intersection(places))
    if needs_name and not options.user_agent:
        yield no_identity(settings)
    is_sent = own_user_agent(settings, spidercls)[1] == options.user_agent
    names_bot = bool(settings["WALSH_USER_AGENT"]) or Gate.ROBOTS.path in places
    if names_bot and not (is_sent or Gate.IDENTITY.path in places):
        expected = (
            f"WALSH_USER_AGENT, whose token {options.ua_token} is looked for in robots.txt; set "
            f"USER_AGENT = WALSH_USER_AGENT ({Gate.IDENTITY} does that too)"
        )
        yield bad_setting("USER_AGENT", settings["USER_AGENT"], expected)


#: Crawls that began earlier do not count: their bot may have moved to another state.
RECENT_SECONDS: Final = 30 * 86_400.0
_MAX_CRAWLS: Final = 100


def warn_of_other_bots(context: Context) -> None:
    """Warn of other bots that used the state since the last crawl of this bot.

    Called before the row of the run is written. So a bot that was renamed is mentioned once, and
    bots that take turns are mentioned each time. Raises StateUnavailable.
    """
    if not _find_others(context, 1):  # the last crawl was one of this bot, as nearly always
        return
    others = _find_others(context, _MAX_CRAWLS)
    project = tokens_of_project()
    token = context.options.ua_token
    if token.lower() in project:
        others = {name: at for name, at in others.items() if name.lower() not in project}
    if others:
        names = ", ".join(
            f"{printable(name)} (its last crawl began at {format_moment(at)})"
            for name, at in others.items()
        )
        logger.warning(
            "another bot uses the state %s: %s; it shares delays, holds and visits with %s. Give "
            "each bot a database or a schema of its own. If your bot was renamed, ignore this",
            context.state.database,
            names,
            token,
        )


def _find_others(context: Context, max_crawls: int) -> dict[str, float]:
    """Return the other bots that crawled since this bot did, among the newest crawls."""
    since = context.clock.now() - RECENT_SECONDS
    crawls = context.state.runs.latest(max_crawls, since, only_crawls=True)
    begun = ((str(crawl.settings.get("ua_token", "")), crawl.started_at) for crawl in crawls)
    return newest_of_others(begun, context.options.ua_token)


def tokens_of_project() -> set[str]:
    """Return the product tokens, in lower case, that the settings and spiders of a project name."""
    settings = get_project_settings()
    # A script may crawl in a project with a module that cannot be imported, which is not its fault.
    settings.set("SPIDER_LOADER_WARN_ONLY", value=True)
    spiders = get_spider_loader(settings)
    tokens: set[str] = set()
    spider_classes = [spiders.load(name) for name in spiders.list()]
    for spidercls in (None, *spider_classes):
        own = settings.copy()
        if spidercls is not None:
            spidercls.update_settings(own)
        try:
            identity = identity_of(own, spidercls)
        except BadSetting:  # its own crawl does not start
            continue
        if identity is not None:
            tokens.add(identity.ua_token.lower())
    return tokens


_NOTE: Final = ".scrapy/walsh-state"
_MAX_NOTE_BYTES: Final = 100


def report_new_state(context: Context, folder: Path | None) -> None:
    """Log at the end of a crawl that its state is new, and note its id in a folder.

    A state is new until a crawl has ended in it. If the folder of the sources file has the note of
    another state, that is worth a warning. Raises StateUnavailable and StateError.
    """
    state = context.state
    if state.database.is_in_memory:
        return
    noted_id = _read_note(folder) if folder else None
    if not state.runs.has_ended_crawl(besides=context.run):
        if noted_id in (None, state.id):
            logger.info("the state %s is new: no crawl ended in it before", state.database)
        else:
            logger.warning(
                "the state %s is new, but crawls with sources in %s used another one: what that "
                "one knows of visits, entries and holds is unknown here. If you did not choose a "
                "new state, set WALSH_STATE_URL to the other one",
                state.database,
                folder,
            )
    if folder and noted_id != state.id:
        _write_note(folder, state.id)


def _read_note(folder: Path) -> str | None:
    """Return the id of the state that a folder notes; None if there is no note."""
    try:
        with (folder / _NOTE).open("rb") as file:
            return file.read(_MAX_NOTE_BYTES).decode("ascii", "replace").strip() or None
    except OSError:
        return None


def _write_note(folder: Path, state_id: str) -> None:
    """Note the id of a state. Nothing depends on it, so a folder that is read-only is no error."""
    try:
        with atomic_file(folder / _NOTE) as file:
            file.write(f"{state_id}\n".encode())
    except OSError as error:
        logger.debug("the state is not noted in %s: %s", folder / _NOTE, error)
