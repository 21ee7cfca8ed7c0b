"""Crawlers that keep their word: middlewares, scheduler and state for polite Scrapy projects.

Each name is imported when it is first used, because every command imports this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

#: The version of a release, for a clone as for an installed package.
__version__ = "0.1.0"

__all__ = ["Addon", "Denied", "RequestDeferred", "SourcesSpider", "__version__"]

_MODULES = {
    "Addon": "addon",
    "Denied": "exceptions",
    "RequestDeferred": "exceptions",
    "SourcesSpider": "feeds.sourcesspider",
}

if TYPE_CHECKING:
    from walsh_scrapy.addon import Addon
    from walsh_scrapy.exceptions import Denied, RequestDeferred
    from walsh_scrapy.feeds.sourcesspider import SourcesSpider
else:  # to mypy it would have every name

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
