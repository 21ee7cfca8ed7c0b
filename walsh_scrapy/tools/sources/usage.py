"""How ``scrapy sources`` is called: its actions, and which options belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.durations import parse_typed_duration
from walsh_scrapy.tools.exits import sources_hint, usage_error

if TYPE_CHECKING:
    import argparse
    from datetime import timedelta

_WITH_URLS: Final = ("add", "remove", "forget", "resume")
#: Options that say what is listed; `--moved` belongs to `rewrite` too.
_LISTING: Final = ("json", "due", "failing", "stale", "all")
_EXAMPLE: Final = "Example: scrapy sources resume https://blog.example/feed.xml"


def check_usage(args: list[str], opts: argparse.Namespace) -> None:
    """Exit with status 2 and one line for a wrong call."""
    for word in args:
        if word.startswith("-"):
            hint = sources_hint(args)
            usage_error(f"there is no option {word}{hint}; see scrapy sources --help")
    action, urls = (args[0], args[1:]) if args else ("", [])
    if action and action not in (*_WITH_URLS, "prune", "rewrite"):
        usage_error(
            f"`sources` takes {', '.join(f'`{each} URL`' for each in _WITH_URLS)}, `prune`, "
            f"`rewrite --moved` or nothing. {_EXAMPLE}"
        )
    if bool(urls) != (action in _WITH_URLS):
        needs = "takes no URL" if urls else "takes a URL"
        example = _EXAMPLE if urls else _EXAMPLE.replace("resume", action)
        usage_error(f"`{action}` {needs}: `{action}{'' if urls else ' URL'}`. {example}")
    if action == "rewrite" and not opts.moved:
        usage_error("`rewrite` takes --moved: scrapy sources rewrite --moved")
    given = [name for name in _LISTING if getattr(opts, name) not in (False, None)]
    if action and given:
        usage_error(f"--{given[0]} belongs to the list, not to `{action}`")
    if opts.yes and action != "prune":
        usage_error("--yes belongs to `prune`: scrapy sources prune --yes")


def duration_of(text: str | None) -> timedelta | None:
    """Read the value of --stale; exit with status 2 and one line for a wrong one."""
    if text is None:
        return None
    try:
        return parse_typed_duration(text.strip())
    except ValueError:
        usage_error(f"--stale: {text[:40]!r} is not a duration; write for example 90d, 12w or P90D")
