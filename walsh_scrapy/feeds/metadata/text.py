"""The texts, links and dates of entries, in the form in which they are kept (R6).

A wrong date is worse than none. The readers of feedparser guess: they overlook PM, take `-700` for
700 hours, turn month 13 into January, and complete a date from the clock. Libraries that read any
text guess too. This module reads only the forms that feeds have, each with one meaning:

- ISO 8601 and RFC 3339, even with a space, without seconds or without a zone; `2020/1/10`;
- RFC 822 and its successors, asctime, and similar ones: names in full, `10th`, the month
  first, no weekday, AM and PM, a comment in parentheses. Months have English names.

`1/2/2020` is the first or the second month, so numbers are a date only if the year comes first.

A zone is UTC, an offset of four digits of at most 14 hours, with or without the name of the zone,
hours from UTC or GMT (`GMT+7` is `+0700`), one of `_ABBREVIATIONS`, or a place of the tz database.
A date with any other zone is None: `IST` may be India, Ireland or Israel.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import quote, urljoin, urlsplit
from zoneinfo import ZoneInfo

from walsh_scrapy.policy.wording import (
    DIRECTION_MARKS,
    LETTERS,
    LOCAL_PART,
    for_others,
    one_line,
    without_references,
)

# The item schema has the same limits, and is checked last. Longer texts are prose.
MAX_TITLE_CHARACTERS: Final = 300  #: Longer titles and sections are cut.
MAX_NAME_CHARACTERS: Final = 300  #: Longer names of authors are dropped.
MAX_TAG_CHARACTERS: Final = 100  #: Longer tags are dropped.
MAX_NAMES: Final = 100  #: Names of authors, or tags, of one entry.
_LANGUAGE: Final = re.compile(r"[a-z]{1,8}(?:-[a-z0-9]{1,8}){0,5}", re.IGNORECASE | re.ASCII)

# A comment or script without an end extends to the end of the text. So each character is read only
# once, and the time is linear even for hostile text.
_COMMENT_OR_SCRIPT: Final = re.compile(
    r"<!--(?:.*?-->|.*)|<(script|style)\b(?:.*?</\1\s*>|.*)", re.DOTALL | re.IGNORECASE
)
_BREAK: Final = re.compile(r"</?(?:br|p|div|li|ul|ol|td|tr|h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]*>")

#: One of several persons in a text: `mail@example.org (Name)`, `Name <mail@example.org>`
#: and the like.
_PERSON: Final = re.compile(
    r"([^@]*[^@\s]@[^@\s<>(),;]+(?:[>)]|\s*\([^()]*\))?)"
    r"(?:\s*(?:[,;&]\s*|and\s+|\Z)|(?<=[>)])\s+)"
)
_BETWEEN_SEMICOLONS: Final = re.compile(r"(?:&#?\w+;|[^;])+")  # a reference such as `&amp;` is text
#: An e-mail address in the name of a person; its host may have no dot.
_ADDRESS_OF_PERSON: Final = re.compile(rf"{LOCAL_PART}@{LETTERS}++")


def list_of(value: object) -> list[object]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def objects_of(value: object) -> Iterator[Mapping[str, object]]:
    """Yield the objects in a list, and nothing if the value is no list."""
    yield from (entry for entry in list_of(value) if isinstance(entry, dict))


def from_html(markup: object) -> str | None:
    """Return the text of a short piece of HTML, on one line; None if it is empty."""
    if not isinstance(markup, str):
        return None
    if "<" in markup:
        markup = _TAG.sub("", _BREAK.sub(" ", _COMMENT_OR_SCRIPT.sub("", markup)))
    return one_line(without_references(markup) if "&" in markup else markup)


def shorten(text: object, max_characters: int) -> str | None:
    """Return the text on one line, cut after a word if it is longer than `max_characters`."""
    line = one_line(text)
    if line is None or len(line) <= max_characters:
        return line
    words = line[:max_characters].rpartition(" ")[0]
    if len(words) < max_characters // 2:  # few spaces, as in Chinese
        words = line[: max_characters - 1]
    return f"{words}…"


def title_of(text: object) -> str | None:
    """Return a title, or a section, on one line, cut to `MAX_TITLE_CHARACTERS`."""
    return shorten(text, MAX_TITLE_CHARACTERS)


def distinct_names(texts: Iterable[str | None]) -> tuple[str, ...]:
    """Return each name once, in order, without empty and long names, at most `MAX_NAMES`."""
    return _distinct(texts, MAX_NAME_CHARACTERS)


def distinct_tags(texts: Iterable[str | None]) -> tuple[str, ...]:
    """Return each tag once, as `distinct_names` does, with e-mail addresses removed (R6)."""
    short = (text for text in texts if text and len(text) <= MAX_TAG_CHARACTERS)
    return _distinct(map(without_addresses, short), MAX_TAG_CHARACTERS)


def _distinct(texts: Iterable[str | None], max_characters: int) -> tuple[str, ...]:
    distinct = dict.fromkeys(text for text in texts if text and len(text) <= max_characters)
    return tuple(distinct)[:MAX_NAMES]


def without_addresses(text: str | None) -> str | None:
    """Return a text with "…" in place of e-mail addresses and credentials; None if no word remains.

    The keys of entries are made from the published titles, so two titles that become equal here do
    not make two entries one.
    """
    if text is None or (bare := for_others(text)) == text:
        return text
    return bare if any(map(str.isalnum, bare)) else None


def person_names(text: str | None) -> Iterator[str | None]:
    """Yield the name of each person in a text, by `person_name`.

    Persons are separated by semicolons, or by any separator after an e-mail address. A comma
    elsewhere may be part of a name: `Doe, Jo`.
    """
    if text is None:
        return
    start = 0
    while person := _PERSON.match(text, start):
        yield person_name(person[1])
        start = person.end()
    for name in _BETWEEN_SEMICOLONS.findall(text, start):
        yield person_name(one_line(name))


def person_name(text: str | None) -> str | None:
    """Return a name without its e-mail addresses: `Name` for `mail@example.org (Name)` (R6).

    `name@host` is an address too, although the host has no dot. Returns None if no name remains, or
    if the text is too long for a name.
    """
    if text is None or not ("@" in text or "%40" in text):
        return text
    if len(text) > MAX_NAME_CHARACTERS:
        return None
    whole = text.replace("%40", "@")
    bare = _ADDRESS_OF_PERSON.sub(" ", whole)
    if bare == whole:
        return text
    return one_line(bare.strip(' ()<>[]{}@",;:')) if any(map(str.isalnum, bare)) else None


def language_tag(text: object) -> str | None:
    """Return a language as a BCP 47 tag (`en-US` for `en_US`); None if the text is no such tag."""
    tag = text.strip().replace("_", "-") if isinstance(text, str) else ""
    return tag if _LANGUAGE.fullmatch(tag) else None


# Most links are like this: nothing in them needs to be resolved, encoded or removed.
_PLAIN_URL: Final = re.compile(
    r"https?://[a-z0-9.-]*[a-z0-9](?::[0-9]+)?(?:[/?#][!-~]*)?", re.ASCII
)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"\A//[^/?#\\]*@")  # a user name and a password, which are removed
# Spaces, and marks that change the order in which a URL is shown.
_TO_ENCODE: Final = re.compile(rf"[\s{DIRECTION_MARKS}]")
_NOT_IN_URLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def is_web_url(link: object) -> bool:
    """Return True if the value is text that begins with `http://` or `https://`."""
    return isinstance(link, str) and _WEB.match(link.strip()) is not None


def web_url(link: object, base: str) -> str | None:
    """Return the link resolved against `base`; None if it is no http or https URL with a host.

    As in browsers, spaces and direction marks are percent-encoded, control characters are removed,
    and the scheme becomes lower case. User name and password are removed. The rest stays as
    published.
    """
    if not isinstance(link, str):
        return None
    if _PLAIN_URL.fullmatch(link):
        return link
    link = _NOT_IN_URLS.sub("", link).strip()
    if not link:
        return None
    try:
        url = link if _WEB.match(link) else urljoin(base, link)
        host = urlsplit(url).hostname if _WEB.match(url) else None
    except ValueError:
        return None
    if not host:
        return None
    scheme, _, rest = _TO_ENCODE.sub(lambda match: quote(match[0]), url).partition(":")
    return f"{scheme.lower()}:{_USER_INFO.sub('//', rest, count=1)}"


_MONTHS: Final = {
    name: month
    for month, names in enumerate(
        (
            "jan january",
            "feb february",
            "mar march",
            "apr april",
            "may",
            "jun june",
            "jul july",
            "aug august",
            "sep sept september",
            "oct october",
            "nov november",
            "dec december",
        ),
        start=1,
    )
    for name in names.split()
}
#: Hours from UTC, by the names of zones that have no other meaning, or another one that feeds never
#: use. `AST`, `BST` and `IST` have several.
_ABBREVIATIONS: Final = {
    name: hours
    for hours, names in (
        (-10, "HST"),
        (-9, "AKST"),
        (-8, "AKDT PST"),
        (-7, "PDT MST"),
        (-6, "MDT CST"),
        (-5, "CDT EST"),
        (-4, "EDT"),
        (-3, "ART BRT"),
        (0, "Z UT UTC GMT WET"),
        (1, "WEST CET WAT"),
        (2, "CEST EET CAT SAST"),
        (3, "EEST EAT MSK"),
        (5, "PKT"),
        (5.75, "NPT"),
        (7, "ICT WIB"),
        (8, "AWST HKT SGT WITA"),
        (9, "JST KST WIT"),
        (9.5, "ACST"),
        (10, "AEST"),
        (10.5, "ACDT"),
        (11, "AEDT"),
        (12, "NZST"),
        (13, "NZDT"),
    )
    for name in names.split()
}
_MAX_OFFSET: Final = timedelta(hours=14)
_MIN_YEAR: Final = 1000  # .NET programs write year 1 for "no date"

_WEEKDAY: Final = r"(?:[^\W\d_]+(?:\.?,\s*|\.?\s+))?"  # in any language; wrong ones are common
_DAY: Final = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_MONTH: Final = r"(?P<month>[^\W\d_]{3,10})"
_YEAR: Final = r"(?P<year>[0-9]{4}|[0-9]{2})"
_LONG_YEAR: Final = r"(?P<year>[0-9]{4})"
_DELIMITER: Final = r"(?:\.?\s+|\.?,\s*|[-/.])"
_TIME: Final = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?"
    r"(?:\s*(?P<half>[ap])\.?m\b\.?)?"
)
# Some programs write a zone twice: `+0000 UTC`, `+0100 CET`, `-0300 -03`, `GMT +0000`, `Z UTC`. The
# offset is used, because most names have several meanings.
_NAME: Final = "(?:z|[a-z]{2,5})"
_OFFSET: Final = (
    rf"(?:(?:(?P<origin>GMT|UTC?)\s*|{_NAME}\s+)?"
    r"(?P<sign>[+-])(?P<hours>(?(origin)[0-9]{1,2}|[0-9]{2}))(?::?(?P<minutes>[0-9]{2}))?"
    rf"(?:\s+(?:{_NAME}|(?P=sign)(?P=hours)(?::?(?P=minutes))?)(?:\s+m=[+-][0-9.]+)?)?)"
)
_UTC: Final = "(?:z|utc?|gmt)"
_ZONE: Final = rf"(?:{_OFFSET}|(?P<zone>[a-z]+(?:/[a-z_-]+)*)|(?P<utc>{_UTC})\s+{_UTC})"
_REST: Final = rf"(?:(?:t|[\s,]+(?:-\s+|at\s+)?){_TIME})?(?:\s*\(?{_ZONE}\)?)?(?:\s*\([^()]*\))?"
_FORMS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_WEEKDAY}{_LONG_YEAR}(?P<by>[-/.])(?P<month>[0-9]{{1,2}})(?P=by)(?P<day>[0-9]{{1,2}}){_REST}",
        rf"{_WEEKDAY}{_DAY}{_DELIMITER}{_MONTH}{_DELIMITER}{_YEAR}{_REST}",
        rf"{_WEEKDAY}{_MONTH}{_DELIMITER}{_DAY}{_DELIMITER}{_YEAR}{_REST}",
        rf"{_WEEKDAY}{_MONTH}\s+{_DAY}\s+{_TIME}(?:\s+{_ZONE})?\s+{_LONG_YEAR}",
        rf"{_LONG_YEAR}{_DELIMITER}{_MONTH}{_DELIMITER}{_DAY}{_REST}",
        rf"{_MONTH}\.?\s+{_LONG_YEAR}",
        rf"{_LONG_YEAR}(?:-(?P<month>[0-9]{{1,2}}))?",
    )
)
_COMPACT: Final = re.compile(r"[0-9]{8}(?:T[0-9:.]+(?:Z|[+-][0-9]{2}(?::?[0-5][0-9])?)?)?")


def date_in_utc(text: object) -> str | None:
    """Return a date as `2026-05-23T00:00:00Z`; None if it is absent, impossible or ambiguous.

    A date without a zone is in UTC, a date without a time is midnight.
    """
    if not isinstance(text, str) or len(text := text.strip()) > 100:
        return None
    try:
        moment = _parse_moment(text)
    except (ValueError, OverflowError):
        return None
    if moment is None or moment.year < _MIN_YEAR:
        return None
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _parse_moment(text: str) -> datetime | None:
    if _COMPACT.fullmatch(text):
        return _to_utc(datetime.fromisoformat(text))
    for form in _FORMS:
        if match := form.fullmatch(text):
            parts = match.groupdict()
            if (day := _day(parts)) and (zone := _zone(parts)):
                return _to_utc(datetime(day.year, day.month, day.day, *_time(parts), tzinfo=zone))
    return None


def _day(parts: dict[str, str | None]) -> date | None:
    name = parts["month"] or "1"
    month = int(name) if name.isdigit() else _MONTHS.get(name.lower())
    day = int(parts.get("day") or 1)
    return date(_full_year(parts["year"] or ""), month, day) if month else None


def _full_year(digits: str) -> int:
    """Return a year with its century (RFC 5322 4.3)."""
    year = int(digits)
    return year if len(digits) > 2 else year + (2000 if year < 50 else 1900)


def _time(parts: dict[str, str | None]) -> tuple[int, int, int]:
    """Return hour, minute and second. Raises ValueError for an hour that has no AM or PM."""
    hour, minute, second = (int(parts.get(name) or 0) for name in ("hour", "minute", "second"))
    if half := parts.get("half"):
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        hour = hour % 12 + (12 if half in "pP" else 0)
    return hour, minute, 59 if second == 60 else second  # datetime knows no leap second


def _zone(parts: dict[str, str | None]) -> tzinfo | None:
    """Return the zone of a date; UTC if the date has no zone, None if the zone is unknown."""
    if name := parts.get("zone") or parts.get("utc"):
        hours = _ABBREVIATIONS.get(name.upper())
        if hours is not None:
            return timezone(timedelta(hours=hours))
        return ZoneInfo(name) if name in _place_names() else None
    if not (sign := parts.get("sign")):
        return UTC
    # `-05` is an offset only in ISO 8601, and after the name of the zone from which it counts.
    is_short = parts["minutes"] is None
    if is_short and not parts["origin"] and not (parts.get("by") and parts["hour"]):
        return None
    minutes = int(parts["minutes"] or 0)
    offset = timedelta(hours=int(parts["hours"] or 0), minutes=minutes)
    return timezone(-offset if sign == "-" else offset) if minutes < 60 else None


@cache
def _place_names() -> frozenset[str]:
    """Return the names of the tz database that name a place, such as `Europe/Brussels`."""
    names = files("tzdata").joinpath("zones").read_text("ascii").split()
    return frozenset(name for name in names if "/" in name and not name.startswith("Etc/"))


def _to_utc(moment: datetime) -> datetime | None:
    """Return a moment in UTC; None if its offset is too large or its local time is ambiguous.

    When summer time begins, some local times never occur; when it ends, some occur twice.
    """
    if moment.tzinfo is None:
        return moment
    offset = moment.utcoffset() or timedelta()
    if abs(offset) > _MAX_OFFSET or offset != moment.replace(fold=1).utcoffset():
        return None
    return moment.astimezone(UTC)
