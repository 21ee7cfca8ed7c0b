"""The components that result from all settings, as Scrapy will build them (decision 22).

A component has many names: its path, the class itself, a module that imports it. Scrapy keeps the
last one, so a second name with None in its place removes a gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from walsh_scrapy.exceptions import refuse_to_start
from walsh_scrapy.options import BadSetting, bad_setting
from walsh_scrapy.runtime.gates import REPLACED, SPIDER_GATES, Gate
from walsh_scrapy.runtime.startup import ADDON, has_addon

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from walsh_scrapy.runtime.startup import Problems

SCHEDULER: Final = "walsh_scrapy.scheduler.Scheduler"
DOWNLOADER: Final = "scrapy.core.downloader.Downloader"
SCHEMES: Final = ("http", "https")

_GATES: Final[dict[str, list[str]]] = {
    "DOWNLOADER_MIDDLEWARES": [gate.path for gate in Gate],
    "SPIDER_MIDDLEWARES": sorted(SPIDER_GATES, key=SPIDER_GATES.__getitem__),
}


def remove_other_names(settings: BaseSettings, name: str, paths: Collection[str]) -> list[str]:
    """Remove all names but the paths of these components; return what was removed, as texts.

    ``name`` is that of a table of components, which is changed together with its ``_BASE``.
    """
    removed = list[str]()
    for table in (settings[name], settings[f"{name}_BASE"]):
        for key in list(table or ()):
            if key not in paths and path_of(key) in paths:
                removed.append(f"{key} = {table[key]}")
                del table[key]
    return removed


def other_schemes(settings: BaseSettings) -> list[str]:
    """Return the schemes of a project's download handlers that are neither http nor https."""
    return [key for key in settings.getwithbase("DOWNLOAD_HANDLERS") if key not in SCHEMES]


def path_of(component: Any) -> str:  # noqa: ANN401 - a path or a class
    """Return the path of the class that a component names; "" if it cannot be imported."""
    try:
        return global_object_name(load_object(component))
    except Exception:  # noqa: BLE001 - any module may be named; Scrapy says what is wrong with it
        return ""


def check_components(crawler: Crawler) -> None:
    """End the process if the components are not those that the add-on set, gates or none."""
    for error in component_problems(crawler.settings):
        refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])


def component_problems(settings: BaseSettings) -> Problems:
    """Find components that are not those that the add-on set, if it is in force.

    Another add-on may have changed them since.
    """
    if not has_addon(settings):
        return
    for name, wanted in _GATES.items():
        components = settings.get_component_priority_dict_with_base(name)
        found = [path_of(each) for each in build_component_list(components)]
        if [path for path in found if path in wanted] != wanted:
            yield _changed(name, f"has to have each gate once, in this order: {_names(wanted)}")
        if others := [path for path in found if path in REPLACED]:
            yield _changed(name, f"has {_names(others)}, in whose place is a gate")
    for name, path in (("SCHEDULER", SCHEDULER), ("DOWNLOADER", DOWNLOADER)):
        if path_of(settings[name]) != path:
            yield _changed(name, f"is {settings[name]}, and has to be {path}")
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    if sorted(key for key in handlers if handlers[key] is not None) != sorted(SCHEMES):
        yield _changed("DOWNLOAD_HANDLERS", "has to have http and https, and nothing else")
    yield from compression_problems(settings)


def compression_problems(settings: BaseSettings) -> Problems:
    """Find out that bodies are not unpacked: a robots.txt may come as gzip (R2)."""
    if not settings.getbool("COMPRESSION_ENABLED"):
        yield bad_setting(
            "COMPRESSION_ENABLED",
            settings["COMPRESSION_ENABLED"],
            "True beside RobotsMiddleware: a compressed robots.txt would count for nothing",
        )


def _changed(name: str, what: str) -> BadSetting:
    return BadSetting(f"{name} {what}; another add-on changed it after {ADDON}: remove that")


def _names(paths: Collection[str]) -> str:
    return ", ".join(path.rpartition(".")[2] for path in paths)
