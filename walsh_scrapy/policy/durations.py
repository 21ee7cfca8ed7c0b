"""Durations: ISO-8601 in documents (R3 `refresh`, `every` of a source), short ones as typed."""

import re
from datetime import timedelta
from typing import Final

_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds")
_TYPED: Final = re.compile(r"([0-9]{1,9})(w|d|h|min)", re.ASCII)
_TYPED_UNITS: Final = {"w": "weeks", "d": "days", "h": "hours", "min": "minutes"}


def parse_duration(text: str) -> timedelta:
    """Read an ISO-8601 duration in weeks, days, hours, minutes and seconds.

    Capital letters and ASCII digits, as in the standard; a decimal fraction, after a point or a
    comma, in the smallest part only. Raises ValueError, with a message of one sentence, for
    everything else, also for years and months, whose lengths vary, and for signs.

    >>> parse_duration("P1DT12H30M")
    datetime.timedelta(days=1, seconds=45000)
    """
    found = _DURATION.fullmatch(text)
    shown = text if len(text) <= 40 else text[:40] + "…"
    if not found:
        raise ValueError(
            f"{shown!r} is not an ISO-8601 duration of weeks, days, hours, minutes and seconds; "
            "write for example PT6H or P1D"
        )
    parts = {unit: number for unit, number in zip(_UNITS, found.groups(), strict=True) if number}
    *larger, _ = parts.values()
    if any(not number.isdigit() for number in larger):
        raise ValueError(f"{shown!r} has a decimal fraction that is not in its smallest part")
    try:
        return timedelta(**{unit: float(n.replace(",", ".")) for unit, n in parts.items()})
    except (OverflowError, ValueError):
        raise ValueError(f"{shown!r} is longer than can be counted") from None


def format_duration(length: timedelta) -> str:
    """Write a duration of at least 0 by ISO-8601, in seconds, as `parse_duration` reads it.

    >>> format_duration(timedelta(hours=6))
    'PT21600S'
    """
    fraction = f".{length.microseconds:06}".rstrip("0") if length.microseconds else ""
    return f"PT{length.days * 86_400 + length.seconds}{fraction}S"


def parse_typed_duration(text: str) -> timedelta:
    """Read a duration as an operator types it: `90min`, `12h`, `1d`, `2w`, or by ISO-8601.

    Raises ValueError, with a message of one sentence, as `parse_duration` does.

    >>> parse_typed_duration("1d")
    datetime.timedelta(days=1)
    """
    found = _TYPED.fullmatch(text)
    if found is None:
        return parse_duration(text)
    try:
        return timedelta(**{_TYPED_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is longer than can be counted") from None
