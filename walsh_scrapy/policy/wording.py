"""Text for people: counts, durations and reasons, and making other people's text safe.

Text from sites is escaped for a terminal, and loses e-mail addresses and credentials before it is
shown to anybody else than the operator.
"""

import re
import unicodedata
from collections import Counter
from html import unescape
from typing import Final, NamedTuple
from urllib.parse import unquote

_STEPS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))

# Control characters, surrogates and line separators: a terminal obeys them, or breaks the line.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Marks of writing direction: they can show the characters of a line in another order.
DIRECTION_MARKS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

# Characters that no XML or UTF-8 export can write: controls, surrogates, non-characters. Besides,
# marks that change the order in which a text is shown.
_UNWRITABLE: Final = re.compile(
    f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff{DIRECTION_MARKS}]"
)
_NOT_IN_XML: Final = re.compile(
    f"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[{DIRECTION_MARKS}]"
)

# Not the reference of a character: Python refuses to convert this many digits.
_ENDLESS: Final = re.compile(r"&#[0-9]{1000,}+;?")

# The parts of an e-mail address. The possessive quantifiers never backtrack, and a part can begin
# only where another character ends, so the time is linear even for hostile text.
LETTERS: Final = r"[^\s@<>()\[\]{}\",;]"
LOCAL_PART: Final = rf"(?<!{LETTERS}){LETTERS}++"
#: An e-mail address with a top-level domain, so that other uses of "@" do not match.
_ADDRESS: Final = re.compile(
    rf"{LOCAL_PART}@(?:[\w-]++\.)+(?:xn--[\w-]+|[^\W\d_]{{2,}})", re.IGNORECASE
)

# A URL, or a path as in a rule of robots.txt.
_URL: Final = re.compile(r"(?<![\w/])(?:https?:/)?/[^\s<>\"'`]++", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"(?<=//)[^\s/?#@]++@")
_PARAMETER: Final = re.compile(r"([?&;#][^\s=&;#?]++=)([^\s&;#\"'<>]++)")
#: Names of parameters whose values are credentials. Short words must be whole words.
_SECRET: Final = re.compile(
    r"token|secret|passw|passphrase|signature|credential|sess(?:ion)?_?id|jwt|hmac|bearer"
    r"|(?:api|access|auth|private)[-_.]?key"
    r"|(?:^|[-_.\[])(?:key|sig|auth|oauth|pwd|pass|pw|sid|session|hash)(?:$|[-_.\]])"
    r"|key[\[\]]*$|^code$",
    re.IGNORECASE,
)
_ADDRESS_IN_QUERY: Final = re.compile(r"[\w.+-]++(?:@|%40)[\w-]++(?:\.[\w-]++)+", re.IGNORECASE)


def without_references(text: str) -> str:
    """Return HTML text with each character reference decoded: `&` for `&amp;`. Never raises."""
    return unescape(_ENDLESS.sub("\ufffd", text))


def for_others(text: str) -> str:
    """Return a text with "…" instead of each e-mail address and credential.

    Credentials are user names and passwords in URLs, and values of parameters such as `token` and
    `key`. The path of a URL stays, because it identifies the request. Never raises.

    >>> for_others("https://user:pw@blog.example/feed?token=1&page=2, says me@blog.example")
    'https://…@blog.example/feed?token=…&page=2, says …'
    """
    if not any(mark in text for mark in ("@", "%40", "=")):
        return text
    parts: list[str] = []
    end = 0
    for url in _URL.finditer(text):
        parts += [_without_addresses(text[end : url.start()]), _without_credentials(url[0])]
        end = url.end()
    return "".join([*parts, _without_addresses(text[end:])])


def _without_addresses(text: str) -> str:
    decoded = text.replace("%40", "@")
    cleaned = _ADDRESS.sub("…", decoded)
    return _PARAMETER.sub(_hide_value, text if cleaned == decoded else cleaned)


def _without_credentials(url: str) -> str:
    return _PARAMETER.sub(_hide_value, _USER_INFO.sub("…@", url))


def _hide_value(parameter: re.Match[str]) -> str:
    name, value = parameter.groups()
    if _SECRET.search(unquote(name[1:-1])):
        return f"{name}…"
    return name + _ADDRESS_IN_QUERY.sub("…", value)


def count_of(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun; ``plural`` is ``singular`` with an s unless given.

    `count_of(1, "entry", "entries")` is `1 entry`.
    """
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def format_bytes(number: int) -> str:
    """Return a number of bytes: `15 MiB`, `58.6 KiB`, `900 bytes`."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + f" {unit}"
    return count_of(number, "byte")


def cut(text: str, max_length: int) -> str:
    """Return the text, shortened to ``max_length`` characters, the last of which is then "…"."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def and_more(number: int) -> str:
    """Return the phrase for the rest of a list that is not shown: `… and 7,990 more`."""
    return f"… and {number:,} more"


def format_seconds(seconds: float) -> str:
    """Format a duration for operators, in its two largest units; "0 s" if negative or NaN.

    >>> format_seconds(7512), format_seconds(0.5)
    ('2 h 5 min', '0.5 s')
    """
    if not seconds >= 0:
        return "0 s"
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    if seconds == float("inf"):
        return "forever"
    remaining = round(seconds)
    parts: list[str] = []
    for unit, size in _STEPS:
        if count := remaining // size:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        remaining %= size
    return " ".join(parts[:2])


def format_relative(seconds: float) -> str:
    """Format a moment by its distance from now, in its largest unit: `in 23 h`, `3 d ago`.

    ``seconds`` is negative for the past.
    """
    length = format_seconds(round(abs(seconds))).split(" ")
    distance = " ".join(length[:2])
    if round(seconds) == 0:
        return "now"
    return f"in {distance}" if seconds > 0 else f"{distance} ago"


class Explained(Exception):
    """Something cannot be used or done; the message is the reason, as a sentence."""


def one_line(text: object) -> str | None:
    """Return the text without control characters and with single spaces; None if it is empty."""
    if not isinstance(text, str):
        return None
    line = " ".join(text.split())
    if not line.isprintable():
        line = " ".join(_UNWRITABLE.sub("", line).split())
    return line or None


def printable(text: str) -> str:
    r"""Return any text as one line that is safe for a terminal and a log.

    Control characters, line separators, lone surrogates and direction marks are escaped: `\x1b`,
    `\n`, `\u202e`.
    """
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(character: str) -> str:
    if unicodedata.category(character) in _UNSAFE_CATEGORIES or character in DIRECTION_MARKS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def xml_text(text: str) -> str:
    """Return a text without characters that XML 1.0 forbids, and without direction marks."""
    return _NOT_IN_XML.sub("", text)


def storable(text: str) -> str:
    """Return a text without NUL and lone surrogates, each replaced by another character.

    PostgreSQL refuses NUL, and UTF-8 cannot encode lone surrogates. JSON and headers may have both.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# The parts of a reason that differ although the problem is the same: URLs, days, and a remark in
# parentheses at the end.
_VARYING: Final = re.compile(r"[a-z]+://\S+|\b\d{4}-\d\d-\d\d\b", re.IGNORECASE)
_NAME: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_REMARK: Final = re.compile(r" \([^()]*\)(?=\.?$)")
_TIMED_OUT: Final = re.compile(r"^(timed out): .*")


class ReasonGroup(NamedTuple):
    """The sources that failed for one reason."""

    reason: str  #: without the names of the hosts: `answered 404`
    sources: int  #: the number of sources
    hosts: tuple[str, ...]  #: each host once, the one with the most sources first


class ReasonGroups:
    """Counts failed sources by the kind of their reason, and within a kind by host."""

    def __init__(self) -> None:
        self._kinds: dict[str, Counter[str]] = {}

    def add(self, host: str, reason: str) -> None:
        """Count a source of ``host`` that failed for ``reason``, a sentence."""
        self._kinds.setdefault(kind_of(reason, host), Counter())[host] += 1

    def largest_first(self) -> list[ReasonGroup]:
        """Return the groups, the one with the most sources first."""
        groups = [
            ReasonGroup(kind, hosts.total(), tuple(host for host, _ in hosts.most_common()))
            for kind, hosts in self._kinds.items()
        ]
        return sorted(groups, key=lambda group: -group.sources)


def kind_of(reason: str, host: str) -> str:
    """Return a reason without the parts that are specific to its host.

    >>> kind_of("a.example answered 404", "a.example")
    'answered 404'
    """
    text = _VARYING.sub("…", reason)
    text = _NAME.sub(lambda name: "the host" if name[0] == host else name[0], text)
    text = _TIMED_OUT.sub(r"\1", text.removeprefix("the host "))
    return _REMARK.sub("", text).rstrip(".")


def shorten(names: tuple[str, ...], max_names: int) -> str:
    """Return the first names of a list of hosts, and the number of the remaining ones.

    >>> shorten(("a", "b", "c", "d"), 2)
    'a, b and 2 more hosts'
    """
    shown = ", ".join(names[:max_names])
    hidden = len(names) - max_names
    return f"{shown} and {count_of(hidden, 'more host')}" if hidden > 0 else shown
