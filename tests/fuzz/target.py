"""What is fuzzed: a function of bytes, and documents to begin with."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

_PARTS = re.compile(rb"(?=<)|(?<=[>\n])")


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of bytes with what must hold for each input.

    ``check`` reads the bytes. It returns if they were read, or refused by the documented error, and
    if what must hold for the result does. Any exception it raises is a finding.
    """

    check: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    pieces: tuple[bytes, ...] = ()  #: of the language that is read, to be joined in any order
    made: st.SearchStrategy[bytes] | None = None  #: whole documents, which no pieces would be


def json_values(*words: str) -> st.SearchStrategy[object]:
    """Return values of JSON of any shape, with these words among their keys and texts."""
    texts = st.text(max_size=8) | (st.sampled_from(words) if words else st.nothing())
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    )


def json_documents(*words: str) -> st.SearchStrategy[bytes]:
    """Return documents of JSON with these words."""
    return json_values(*words).map(json.dumps).map(str.encode)


def encoded(*texts: str) -> tuple[bytes, ...]:
    """Return texts as bytes; halves of surrogate pairs as if UTF-8 had them."""
    return tuple(text.encode("utf-8", "surrogatepass") for text in texts)


@st.composite
def bodies(draw: st.DrawFn, target: Target) -> bytes:
    """Return any bytes, text or pieces: alone, or in the middle of a seed."""
    text = st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
    lines_and_tags = [each for seed in target.seeds for each in _PARTS.split(seed)]
    piece = st.sampled_from([*target.pieces, *lines_and_tags]) | st.binary(max_size=9)
    mixed = st.lists(piece, max_size=40).map(b"".join)
    made = mixed if target.made is None else target.made
    noise = draw(st.binary(max_size=300) | text | mixed | made)
    seed = draw(st.sampled_from((b"", *target.seeds)))
    start = draw(st.integers(0, len(seed)))
    end = draw(st.integers(start, min(len(seed), start + 30)))
    return seed[:start] + noise + seed[end:]


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
