"""Start-up checks: what a gate needs of the settings around it (decision 22).

The add-on sets all of this. A project that uses single gates sets it itself; a gate that lacks it
ends the process at the start, with one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from walsh_scrapy.exceptions import refuse_to_start
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.runtime.gates import Gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

ADDON = "walsh_scrapy.addon.Addon"


def check_start(crawler: Crawler, check: Callable[[BaseSettings], None]) -> None:
    """End the process with one line if ``check`` raises BadSetting, before anything is sent."""
    try:
        check(crawler.settings)
    except BadSetting as error:
        refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])


def check_gates(settings: BaseSettings) -> None:
    """Raise BadSetting if the add-on is missing or switched off, so that no gate is in force."""
    addons = map(load_object, build_component_list(settings["ADDONS"]))
    has_addon = any(
        isinstance(each, type) and issubclass(each, load_object(ADDON)) for each in addons
    )
    if not has_addon or not Options.from_settings(settings).enabled:
        raise BadSetting(
            "the gates are switched off by ADDONS or WALSH_ENABLED, and no request is sent without "
            f'them; set ADDONS = {{"{ADDON}": 500}}'
        )


class Place(NamedTuple):
    """The position of a downloader middleware, counted from the engine to the wire."""

    number: int
    kind: type


def in_force(settings: BaseSettings, *kinds: type | Gate) -> list[Place]:
    """Return the positions of a project's downloader middlewares of these classes."""
    classes = tuple(kind.kind if isinstance(kind, Gate) else kind for kind in kinds)
    components = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    chain = enumerate(map(load_object, build_component_list(components)))
    return [Place(at, each) for at, each in chain if issubclass(each, classes)]


def require_order(
    settings: BaseSettings,
    first: tuple[type | Gate, ...],
    then: tuple[type | Gate, ...],
    remedy: str,
) -> None:
    """Raise BadSetting if one of ``then`` is nearer to the engine than one of ``first``.

    ``remedy`` ends the message: why, and which order to set.
    """
    before, behind = in_force(settings, *first)[-1:], in_force(settings, *then)[:1]
    if before and behind and before[0].number > behind[0].number:
        raise BadSetting(
            f"DOWNLOADER_MIDDLEWARES has {behind[0].kind.__name__} before "
            f"{before[0].kind.__name__}, but it has to come after that: {remedy}"
        )
