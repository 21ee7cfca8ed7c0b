"""Lengths of time as documents spell them and as operators read them (R3 `refresh`, sources)."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds")
_STEPS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def parse_duration(text: str) -> timedelta:
    """Read an ISO-8601 duration from weeks down to seconds: `P1W`, `PT6H`, `P1DT12H30M`, `PT0.5S`.

    Capitals and ASCII digits, as the standard has them; a decimal point or comma in the smallest
    part only. Months and years have no fixed length and are refused, as are signs.
    Raises ValueError, one sentence, for everything else.
    """
    found = _DURATION.fullmatch(text)
    shown = text if len(text) <= 40 else text[:40] + "…"
    if not found:
        raise ValueError(
            f"{shown!r} is no ISO-8601 duration of weeks, days, hours, minutes and seconds; "
            "write for example PT6H or P1D"
        )
    parts = {unit: number for unit, number in zip(_UNITS, found.groups(), strict=True) if number}
    *larger, _ = parts.values()
    if any(not number.isdigit() for number in larger):
        raise ValueError(f"{shown!r} has a decimal fraction that is not in its smallest part")
    try:
        return timedelta(**{unit: float(n.replace(",", ".")) for unit, n in parts.items()})
    except (OverflowError, ValueError):
        raise ValueError(f"{shown!r} is a longer time than can be reckoned with") from None


def format_seconds(seconds: float) -> str:
    """Say a number of seconds in its two largest units, for operators: `2 h 5 min`, `0.5 s`."""
    if not seconds >= 0:
        return "0 s"
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    if seconds == float("inf"):
        return "for ever"
    left, said = round(seconds), list[str]()
    for unit, size in _STEPS:
        if count := left // size:
            said.append(f"{count} {unit}")
        elif said:
            break
        left %= size
    return " ".join(said[:2])


def format_moment(epoch_seconds: float) -> str:
    """Say a time for operators, in UTC: `2026-05-23 06:00:00 UTC`; one beyond the calendar so."""
    try:
        return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "a time beyond the calendar"
