r"""How a log is laid out: the format that its server was given, as a pattern.

    %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D          Apache's LogFormat
    $remote_addr [$time_local] "$request" $status "$http_user_agent"   nginx's log_format

Combined Log Format and `%t` do not say who wrote them, so their times count as either. Every other
field ends where the text after it begins, so a line is read in linear time.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.testing.judgelog.lines import (
    FINE,
    NAMELESS,
    STAMP,
    UNKNOWN,
    line_of,
    moment_of,
    second_of,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from walsh_scrapy.testing.judgelog.lines import Line

#: What stands in quotes, and the target of a request, as servers write them.
QUOTED: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
TARGET: Final = rb'[^"\\ ]*+(?:\\.[^"\\ ]*+)*+'
#: Common Log Format, or with the User-Agent Combined Log Format.
LINE: Final = re.compile(
    rb"\[(?P<time>" + STAMP + rb")\] "
    rb'"[A-Z]{1,20}+ (?P<target>' + TARGET + rb')(?: HTTP/[\d.]++)?" (?P<status>\d{3}) [\d-]++'
    rb'(?: "' + QUOTED + rb'" "(?P<agent>' + QUOTED + rb')")?',
    re.DOTALL,
)
#: The formats that are read without being told, by their names in Apache and nginx.
KNOWN: Final = ("common", "combined", "vhost_combined")
#: The address in front of Common Log Format, behind a virtual host or not; or a host name there.
_ADDRESS: Final = re.compile(
    rb"(?:[^ ]++ )??(\d{1,3}(?:\.\d{1,3}){3}|[\da-fA-F]*+:[\da-fA-F]*+:[\da-fA-F:.]*+)(?:%\w+)?[ ,]"
    rb"|(?:[^ ]+:\d+ )?([^ ]+) "
).match
_WORD: Final = re.compile(
    r"%%|%[!<>,\d]*(?:\{(?P<of>[^}]*)\})?(?P<letter>\^[A-Za-z]{2}|[A-Za-z])"
    r"|\$(?:\{(?P<braced>\w+)\}|(?P<name>\w+))"
)
#: Two parts of a time, at the same edge of a request.
_PARTS: Final = re.compile(
    r"%\{(begin:|end:|)([^}]*%[^}]*)\}t([^%$\"\[\]{}]{0,3})%\{\1(?!begin:|end:)([^}]*)\}t"
)
_STRPTIME: Final = re.compile("%[A-Za-z]")
_FRACTIONS: Final = ("msec_frac", "usec_frac")
_NEEDED: Final = {
    "time": "the time with its seconds and zone (%t, $time_local)",
    "target": "the request (%r, $request, $request_uri)",
    "status": "the status (%>s, $status)",
    "agent": "the User-Agent (%{User-Agent}i, $http_user_agent)",
}


class _Field(NamedTuple):
    """What a word of a format says, and how that is written."""

    kind: str
    pattern: bytes
    unit: float = 1.0  #: seconds, of a duration or of a time since the epoch
    read: Callable[[bytes], float | None] | None = None  #: a time as epoch seconds
    is_end: bool | None = False  #: of a time; None: nobody knows
    blur: float = 1


class Layout:
    """How the lines of one log are written."""

    def __init__(self, pattern: re.Pattern[bytes], time: _Field, duration: _Field | None) -> None:
        self._find = pattern.match if pattern is not LINE else pattern.search
        self._time, self._duration = time, duration
        self._last: tuple[bytes, float | None] = (b"", None)
        self._groups = ("time", "target", "status", "agent", "duration")[: 5 if duration else 4]
        self._has_address = "address" in pattern.groupindex
        self._is_known = pattern is LINE

    @classmethod
    def known(cls) -> Layout:
        """Return the layout of Common and Combined Log Format, by whichever server."""
        return cls(LINE, _Field("time", b"", read=second_of, is_end=None), None)

    @classmethod
    def of(cls, written: str) -> Layout:
        """Return the layout of a format. Raises ValueError if a field is missing."""
        if written in KNOWN:
            return cls.known()
        plain = re.sub(r"\\([\"'\\])", r"\1", written).replace(r"\t", "\t")
        pieces = list(_pieces(_joined(plain)))
        fields: dict[str, _Field] = {}
        for each in pieces:
            if isinstance(each, _Field) and each.kind:
                known = fields.setdefault(each.kind, each)
                if (each.blur, each.is_end is None) < (known.blur, known.is_end is None):
                    fields[each.kind] = each
        if missing := [said for kind, said in _NEEDED.items() if kind not in fields]:
            raise ValueError(f"the --format lacks {', '.join(missing)}: bots are judged by these")
        pattern = re.compile(b"".join(_patterns(pieces, fields)), re.DOTALL)
        return cls(pattern, fields["time"], fields.get("duration"))

    def read(self, written: bytes) -> Line | None:
        """Return what a line says; None if it is laid out in another way."""
        found = self._find(written)
        if found is None:
            return None
        stamp, target, status, agent, *durations = found.group(*self._groups)
        moment, time = self._moment(stamp), self._time
        if moment is None:
            return None
        took, blur = None, time.blur
        if self._duration is not None and durations[0] != b"-":
            took = float(durations[0]) * self._duration.unit
            blur = blur if time.is_end is False else max(blur, self._duration.blur)
        if self._is_known:
            agent = UNKNOWN if agent is None else agent or NAMELESS
            place = _ADDRESS(written)
            address = (place[1] or place[2]) if place else b""
        else:
            address = found["address"] if self._has_address else b""
        fields = (target, status, agent, address)
        return line_of(moment, took, blur, fields, is_end=time.is_end)

    def _moment(self, stamp: bytes) -> float | None:
        if stamp != self._last[0]:
            read = self._time.read
            self._last = (stamp, read(stamp) if read else float(stamp) * self._time.unit)
        return self._last[1]


def _joined(written: str) -> str:
    """Return a format in which a time that Apache writes in parts is one word.

    Its manual has `%{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t`, because `%{...}t` has no fractions.
    """
    earlier = ""
    while earlier != written:
        earlier, written = written, _PARTS.sub(_join, written)
    return written


def _join(parts: re.Match[str]) -> str:
    edge, first, text, second = parts.groups()
    if second in _FRACTIONS:
        second = "%f"
    words = _STRPTIME.findall(_spelled_out(first + second))
    # Seconds since the epoch need no other part, and no time says a part twice.
    is_one = "%" in second and "%s" not in words and len(words) == len(set(words))
    return f"%{{{edge}{first}{text}{second}}}t" if is_one else parts[0]


def _spelled_out(form: str) -> str:
    """Return a format of strftime without the short forms that Python's strptime lacks."""
    return form.replace("%T", "%H:%M:%S").replace("%F", "%Y-%m-%d").replace("%R", "%H:%M")


def _pieces(written: str) -> Iterator[bytes | _Field]:
    """Yield the text and the words of a format, in order."""
    at = 0
    for word in _WORD.finditer(written):
        if text := written[at : word.start()]:
            yield text.encode()
        at = word.end()
        if word[0] == "%%":
            yield b"%"
        elif word["letter"]:
            yield _apache(word["letter"], word["of"])
        else:
            yield _NGINX.get(word["braced"] or word["name"], _OTHER)
    if text := written[at:]:
        yield text.encode()


_OTHER: Final = _Field("", b"")
_EPOCH: Final = rb"\d{1,12}(?:\.\d+)?"
_REQUEST: Final = _Field("target", rb"[A-Z]{1,20}+ (?P<target>" + TARGET + rb")(?: HTTP/[\d.]++)?")
_STATUS: Final = _Field("status", rb"\d{3}|-")
_AGENT: Final = _Field("agent", b"")
_ADDRESS_FIELD: Final = _Field("address", b"")
_DURATION: Final = rb"\d+(?:\.\d+)?|-"
_NGINX: Final[Mapping[str, _Field]] = {
    "time_local": _Field("time", STAMP, read=second_of, is_end=True),
    "time_iso8601": _Field("time", rb"[\dT:+-]+", read=moment_of, is_end=True),
    "msec": _Field("time", _EPOCH, is_end=True, blur=FINE),
    "request": _REQUEST,
    "request_uri": _Field("target", b""),
    "status": _STATUS,
    "http_user_agent": _AGENT,
    "remote_addr": _ADDRESS_FIELD,
    "http_x_forwarded_for": _ADDRESS_FIELD,
    "request_time": _Field("duration", _DURATION, blur=FINE),
}
_APACHE: Final[Mapping[str, _Field]] = {
    "t": _Field("time", rb"\[(?P<time>" + STAMP + rb")\]", read=second_of, is_end=None),
    "h": _ADDRESS_FIELD,
    "a": _ADDRESS_FIELD,
    "r": _REQUEST,
    "s": _STATUS,
    "D": _Field("duration", _DURATION, unit=1e-6, blur=FINE),
    "T": _Field("duration", _DURATION),
}
#: What a time in words of strftime has to have: zone, seconds, hour and day.
_PARTS_NEEDED: Final = ("%z", "%[ScX]", "%[HIcX]", "%[djcx]")
#: The parts of %{...}T and of %{...}t: what a number counts.
_UNITS: Final = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6, "usec": 1e-6}


def _apache(letter: str, of: str | None) -> _Field:
    if of is None:
        return _APACHE.get(letter, _OTHER)
    if letter == "i":
        return {"user-agent": _AGENT, "x-forwarded-for": _ADDRESS_FIELD}.get(of.lower(), _OTHER)
    if letter == "T" and of in _UNITS:
        return _APACHE["T"]._replace(unit=_UNITS[of], blur=1 if of == "s" else FINE)
    return _apache_time(of) if letter == "t" else _OTHER


def _apache_time(of: str) -> _Field:
    """Return the field of `%{...}t`: seconds since the epoch, or the words of strftime."""
    edge, colon, rest = of.partition(":")
    is_end = {"begin": False, "end": True}.get(edge if colon else "")
    form = rest if colon and edge in ("begin", "end") else of
    if form in _UNITS:
        fine = 1 if form == "sec" else FINE
        return _Field("time", rb"\d{1,18}", _UNITS[form], is_end=is_end, blur=fine)
    form = _spelled_out(form)
    if form == "%s":
        return _Field("time", rb"\d{1,12}", is_end=is_end)
    # Without its day or its seconds, requests far apart have the same time.
    if not all(re.search(part, form) for part in _PARTS_NEEDED):
        return _OTHER

    def read(stamp: bytes) -> float | None:
        try:
            moment = datetime.strptime(stamp.decode("ascii"), form)  # noqa: DTZ007 - it has %z
            return whole(moment.timestamp())
        except (ValueError, re.error):  # re.error: the format has a part twice
            return None

    return _Field("time", b"", read=read, is_end=is_end, blur=FINE if "%f" in form else 1)


def _patterns(pieces: list[bytes | _Field], fields: Mapping[str, _Field]) -> Iterator[bytes]:
    """Yield the pattern of each piece of a format, up to the last field that is needed."""
    left = dict(fields)
    for at, piece in enumerate(pieces):
        after = pieces[at + 1] if at + 1 < len(pieces) else b""
        if isinstance(piece, bytes):
            yield re.escape(piece)
            continue
        pattern = piece.pattern or _anything(pieces[at - 1] if at else b"", after)
        if left.get(piece.kind) is not piece:
            yield re.sub(rb"\?P<\w+>", b"?:", pattern)
            continue
        del left[piece.kind]
        yield pattern if b"?P<" in pattern else b"(?P<%s>%s)" % (piece.kind.encode(), pattern)
        if not left:
            yield re.escape(after[:1]) if isinstance(after, bytes) else b""
            return


def _anything(before: bytes | _Field, after: bytes | _Field) -> bytes:
    """Return the pattern of a field of any kind, by the text around it."""
    if isinstance(before, bytes) and before.endswith(b'"') and after[:1] == b'"':
        return QUOTED
    if isinstance(after, _Field):
        return rb'[^\s"/\[]*+'
    if after:
        return rb"(?>.*?(?=" + re.escape(after) + rb"))"
    return rb".*+"
