"""What is fuzzed: a function of bytes, and documents to begin with."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of bytes with what must hold for each input.

    ``check`` reads the bytes. It returns if they were read, or refused by the documented error, and
    if what must hold for the result does. Any exception it raises is a finding.
    """

    check: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    folder: str | None = None  #: where a folder of recorded documents has those for this target


def assert_sentence(error: Exception, longest: int) -> None:
    """Raise AssertionError if an error is no single line of so many characters at most."""
    text = str(error)
    assert text
    assert len(text.splitlines()) == 1, text
    assert len(text) <= longest, f"{len(text):,} characters"


def assert_bounded(result: object, body: bytes, times: int) -> None:
    """Raise AssertionError if a result is longer, as text, than so many times its document."""
    size = len(repr(result))
    assert size <= times * len(body) + 10_000, f"{size:,} characters of {len(body):,} bytes"
