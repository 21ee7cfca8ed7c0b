"""Bounds of what parsers return for a document."""


def assert_sentence(error: Exception, max_characters: int) -> None:
    """Raise AssertionError unless an error is one line of at most so many characters."""
    text = str(error)
    assert text
    assert len(text.splitlines()) == 1, text
    assert len(text) <= max_characters, f"{len(text):,} characters"


def assert_bounded(result: object, body: bytes, max_ratio: int) -> None:
    """Raise AssertionError if a result, as text, is much longer than its document."""
    size = len(repr(result))
    assert size <= max_ratio * len(body) + 10_000, f"{size:,} characters of {len(body):,} bytes"
