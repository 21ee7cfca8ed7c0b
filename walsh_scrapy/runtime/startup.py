"""What a gate needs of the settings around it; below that it refuses to start (decision 22).

The add-on sets all of this. A project that takes one gate alone sets it itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from walsh_scrapy.exceptions import refuse_to_start
from walsh_scrapy.options import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings


def check_floor(crawler: Crawler, check: Callable[[BaseSettings], None]) -> None:
    """End the process with one line if ``check`` raises BadSetting, before anything is sent."""
    try:
        check(crawler.settings)
    except BadSetting as error:
        refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])


class Place(NamedTuple):
    """Where a downloader middleware stands, counted from the engine to the wire."""

    number: int
    kind: type


def in_force(settings: BaseSettings, *kinds: type) -> list[Place]:
    """Return the places of the downloader middlewares of some kinds that a project has."""
    components = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    classes = map(load_object, build_component_list(components))
    return [Place(at, each) for at, each in enumerate(classes) if issubclass(each, kinds)]


def require_order(
    settings: BaseSettings, first: tuple[type, ...], then: tuple[type, ...], remedy: str
) -> None:
    """Raise BadSetting if one of ``then`` stands nearer to the engine than one of ``first``."""
    before, behind = in_force(settings, *first)[-1:], in_force(settings, *then)[:1]
    if before and behind and before[0].number > behind[0].number:
        raise BadSetting(
            f"DOWNLOADER_MIDDLEWARES has {behind[0].kind.__name__} before "
            f"{before[0].kind.__name__}, but has to have it behind: {remedy}"
        )
