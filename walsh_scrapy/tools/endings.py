"""How commands end that only read or change the record: with one line when it cannot be done."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


class CannotDo(Exception):
    """What an operator asked for cannot be done: what, and what to do instead."""


@contextmanager
def one_line() -> Iterator[None]:
    """Turn what may go wrong into one line and exit status 1; a closed pipe into silence."""
    from sqlalchemy.exc import DBAPIError

    from walsh_scrapy.exceptions import refuse_to_start
    from walsh_scrapy.options import BadSetting
    from walsh_scrapy.sources import SourcesError
    from walsh_scrapy.state import StateError
    from walsh_scrapy.tools.sources.known import UnknownSource

    _never_fail_to_print()
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read us, `head` for one, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (BadSetting, CannotDo, SourcesError, StateError, UnknownSource) as error:
        refuse_to_start(error, log_file=None)
    except DBAPIError as error:
        refuse_to_start(StateError(f"the state failed: {error.orig}"), log_file=None)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def wrong_call(message: str) -> NoReturn:
    """End with one line and exit status 2: the command was not called as it wants to be."""
    print(f"walsh-scrapy: {message}", file=sys.stderr)
    raise SystemExit(2)


def _never_fail_to_print() -> None:
    """Let a terminal that cannot show a character show its number."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
