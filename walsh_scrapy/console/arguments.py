"""Arguments that several commands have, and the values of arguments.

A function ``read_...`` converts the text of an argument. It raises ValueError, and the message is
shown to the operator.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.feeds.stores.handover import Position

_MAX_DAYS: Final = 400
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RUN: Final = re.compile(r"[0-9]{1,18}")


def add_settings(parser: argparse.ArgumentParser, *, is_action: bool) -> None:
    """Add the option ``-s``, which may come before or after the name of an action."""
    parser.add_argument(
        "-s",
        "--set",
        metavar="NAME=VALUE",
        action="append",
        type=_typed(_read_setting),
        dest="action_settings" if is_action else "settings",
        default=argparse.SUPPRESS,
        help="override a setting of the project (may be repeated)",
    )


def add_flag(parser: argparse.ArgumentParser, name: str, text: str, **options: Any) -> None:  # noqa: ANN401
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=text, **options)


def add_value(
    parser: argparse.ArgumentParser,
    name: str,
    metavar: str,
    text: str,
    read: Callable[[str], Any] = str,
    **options: Any,  # noqa: ANN401 - passed on to argparse
) -> None:
    """Add an argument with a value, which ``read`` converts."""
    parser.add_argument(name, metavar=metavar, type=_typed(read), help=text, **options)


def add_urls(parser: argparse.ArgumentParser, text: str) -> None:
    """Add one or more URLs."""
    add_value(parser, "urls", "URL", text, nargs="+")


def add_host(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    """Add a host, and the option ``--because``."""
    add_value(parser, "host", "HOST", "a host name such as blog.example")
    add_value(
        parser,
        "--because",
        "TEXT",
        "your reason, in one line; it is recorded",
        _read_reason,
        required=is_required,
    )


def add_json(
    parser: argparse.ArgumentParser,
    text: str = "one JSON object per line",
    **options: Any,  # noqa: ANN401 - passed on to argparse
) -> None:
    """Add the option ``--json``."""
    add_flag(parser, "--json", f"print {text}", **options)


def add_sources(parser: argparse.ArgumentParser, **options: Any) -> None:  # noqa: ANN401
    """Add the option ``--sources``."""
    add_value(parser, "--sources", "FILE", "the sources file (default WALSH_SOURCES)", **options)


def add_since(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--since``."""
    text = "only what came since today, yesterday, 7d (7 days), a date or an RFC 3339 time"
    add_value(parser, "--since", "WHEN", text, _read_moment)


def add_output(
    parser: argparse.ArgumentParser,
    metavar: str = "FILE",
    text: str = "write to a new FILE, or - for standard output",
) -> None:
    """Add the options ``-o``, which ``text`` describes, and ``-O``."""
    parser.add_argument("-o", "--output", metavar=metavar, help=text)
    parser.add_argument(
        "-O",
        "--overwrite-output",
        metavar="FILE",
        help="write to FILE, and replace it if it exists",
    )


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Add the option ``-L``."""
    parser.add_argument("-L", "--loglevel", metavar="LEVEL", help="log level (default WARNING)")


def _typed(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a ``type`` for ``add_argument`` that reports the message of a ValueError."""

    def checked(text: str) -> Any:  # noqa: ANN401 - the type that ``read`` returns
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _read_setting(text: str) -> tuple[str, str]:
    name, is_setting, value = text.partition("=")
    if not is_setting:
        raise ValueError(f"{text!r} is not a setting; write NAME=VALUE")
    return name, value


def _read_moment(text: str) -> float:
    from walsh_scrapy.policy.durations import parse_since

    return parse_since(text, time.time())


def read_duration(text: str) -> float:
    """Return a duration in seconds."""
    from walsh_scrapy.policy.durations import parse_typed_duration

    try:
        return parse_typed_duration(text.strip()).total_seconds()
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a duration, such as 90d, 12w or P90D") from None


def read_delay(text: str) -> float:
    """Return a delay in seconds, from seconds or a duration."""
    for read in (float, read_duration):
        with suppress(ValueError):
            seconds = read(text.strip())
            if 0.0 <= seconds < math.inf:
                return seconds
    raise ValueError(f"{text!r} is not a number of seconds or a duration, such as 90 or 2h")


def read_date(text: str) -> str:
    """Return the date in the form `2026-11-17`."""
    from datetime import UTC, datetime

    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date().isoformat()
    except ValueError:
        raise ValueError(f"{text!r} is not a date, such as 2026-11-17") from None


def _read_reason(text: str) -> str:
    if not text.strip() or any(ord(character) < 32 for character in text):
        raise ValueError('write one line of text, such as "mail of 3 May: go on"')
    return text.strip()


def read_days(text: str) -> int:
    """Return a number of days."""
    if not (text.isdecimal() and 1 <= int(text) <= _MAX_DAYS):
        raise ValueError(f"{text} is not a number of days from 1 to {_MAX_DAYS}")
    return int(text)


def read_patience(text: str) -> float:
    """Return a factor of at least 1."""
    with suppress(ValueError):
        factor = float(text)
        if 1.0 <= factor < math.inf:
            return factor
    raise ValueError(f"{text} is not a number of at least 1")


def read_name(text: str) -> str:
    """Return a name that the state keeps, such as that of a reader."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text[:80]!r} is not a name of 1 to 64 letters, digits, dots, hyphens and underscores"
        )
    return text


def read_position(text: str) -> Position:
    """Return the position of an entry."""
    from walsh_scrapy.feeds.stores.handover import Position

    return Position.parse(text)


def read_run(text: str) -> int:
    """Return the number of a run."""
    if not _RUN.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not the number of a run")
    return int(text)
