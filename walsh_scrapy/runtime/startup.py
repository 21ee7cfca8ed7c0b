"""Start-up checks: what a gate needs of the settings around it (decision 22).

The add-on sets all of this. A project that uses single gates sets it itself. If its gates lack a
setting, the process ends at the start with all that is missing, and nothing is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from walsh_scrapy import identity
from walsh_scrapy.exceptions import refuse_to_start
from walsh_scrapy.options import BadSetting, Options, bad_setting, proposed_identity
from walsh_scrapy.runtime.gates import Gate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

ADDON = "walsh_scrapy.Addon"
HANDLER = "walsh_scrapy.downloadhandler.DownloadHandler"

Problems: TypeAlias = "Iterator[BadSetting]"


def check_start(settings: BaseSettings) -> None:
    """End the process if a gate of a crawl lacks a setting, before anything is sent.

    All gates are checked together, so an operator reads all errors at once.
    """
    errors = list(dict.fromkeys(map(str, _problems(settings))))
    if errors:
        lines = [f"{len(errors)} settings have to be changed first:", *errors]
        told = errors[0] if len(errors) == 1 else "\n  - ".join(lines)
        refuse_to_start(BadSetting(told), log_file=settings["LOG_FILE"])


def _problems(settings: BaseSettings) -> Problems:
    try:
        Options.from_settings(settings)
    except BadSetting as error:
        yield error
    for place in in_force(settings, *Gate):
        if hasattr(place.kind, "problems"):  # a gate that says which settings have to be changed
            yield from place.kind.problems(settings)
    if not in_force(settings, Gate.IDENTITY):
        yield from _identity_problems(settings)
    if settings["WALSH_SIGNING_KEY"]:
        yield from _signing_problems(settings)


def _signing_problems(settings: BaseSettings) -> Problems:
    """Yield an error unless our handler sends the requests that are signed."""
    handler = settings.getwithbase("DOWNLOAD_HANDLERS").get("https")
    if handler is None or not issubclass(load_object(handler), load_object(HANDLER)):
        why = "WALSH_SIGNING_KEY, because no other signs requests"
        wanted = f'{{"https": "{HANDLER}"}} with {why}'
        yield bad_setting("DOWNLOAD_HANDLERS", {"https": handler}, wanted)


def _identity_problems(settings: BaseSettings) -> Problems:
    """Without the identity gate ``USER_AGENT`` is what is sent (R1)."""
    sent, named = str(settings["USER_AGENT"]), settings["WALSH_USER_AGENT"]
    token = settings["WALSH_UA_TOKEN"] or identity.UA_TOKEN
    if in_force(settings, Gate.ROBOTS) and token.lower() not in sent.lower():
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


def check_gates(settings: BaseSettings) -> None:
    """Raise BadSetting if the add-on is missing or switched off, so that no gate is in force."""
    if not has_addon(settings):
        raise BadSetting(
            "the gates are switched off by ADDONS or WALSH_ENABLED, and no request is sent without "
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


class Position(NamedTuple):
    """The position of a downloader middleware, counted from the engine to the wire."""

    number: int
    kind: type


def in_force(settings: BaseSettings, *kinds: type | Gate) -> list[Position]:
    """Return the positions of a project's downloader middlewares of these classes."""
    classes = tuple(kind.kind if isinstance(kind, Gate) else kind for kind in kinds)
    components = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    chain = enumerate(map(load_object, build_component_list(components)))
    return [Position(at, each) for at, each in chain if issubclass(each, classes)]


def require_order(
    settings: BaseSettings,
    gate: Gate,
    why: str,
    *,
    after: tuple[type | Gate, ...] = (),
    before: tuple[type | Gate, ...] = (),
) -> Problems:
    """Yield an error if a gate is nearer to the engine than one of ``after``.

    The same if it is farther from it than one of ``before``. ``why`` is a clause for the operator.
    """
    first, then = after or (gate,), before or (gate,)
    last, next_one = in_force(settings, *first)[-1:], in_force(settings, *then)[:1]
    if last and next_one and last[0].number > next_one[0].number:
        yield BadSetting(
            f"DOWNLOADER_MIDDLEWARES has {next_one[0].kind.__name__} before "
            f"{last[0].kind.__name__}, but it has to come after that: {why}; "
            f"set the order of {gate.kind.__name__} to {gate.order}"
        )
