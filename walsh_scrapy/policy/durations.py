"""ISO-8601 durations of documents: R3 `refresh`, `every` and `pause` of a source."""

import re
from datetime import timedelta
from typing import Final

_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds")


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
