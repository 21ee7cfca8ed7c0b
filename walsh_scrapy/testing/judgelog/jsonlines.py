"""Lines of JSON, as Caddy, Traefik and nginx (`escape=json`, variables as keys) write them.

| | Caddy | Traefik | nginx |
|---|---|---|---|
| time | `ts` (end) | `StartUTC` (beginning) | `msec`, `time_iso8601`, `time_local` (end) |
| duration | `duration`, s | `Duration`, ns | `request_time`, s |
| target | `request.uri` | `RequestPath` | `request_uri` or `request` |
| status | `status` | `DownstreamStatus` | `status` |
| User-Agent | `request.headers.User-Agent` | `request_User-Agent` | `http_user_agent` |
| address | `request.client_ip`, `request.remote_ip` | `ClientHost` | `remote_addr` |
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from walsh_scrapy.testing.judgelog.lines import (
    FINE,
    NAMELESS,
    STAMP,
    Line,
    line_of,
    moment_of,
    second_of,
    whole,
)

#: The fields that are needed, with their keys.
NEEDED: Final = {
    "time": "time with seconds and zone (ts, StartUTC, msec, time_iso8601 or time_local)",
    "target": "request (request.uri, RequestPath, request_uri or request)",
    "status": "status (status or DownstreamStatus)",
    "agent": "User-Agent (request.headers, request_User-Agent or http_user_agent)",
}
_BEGINNINGS: Final = ("StartUTC", "StartLocal")
_ENDS: Final = ("msec", "ts", "time_iso8601", "time_local", "time")
_STAMP: Final = re.compile(STAMP)
#: The last moment that counts, in epoch seconds; a larger number has milliseconds or less.
_LATEST: Final = 1e11


def read(line: bytes, missing: set[str]) -> Line | None:
    """Return what a line says; None if it lacks a field, which is added to ``missing``."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    request = record.get("request")
    caddy = request if isinstance(request, dict) else {}
    begun = _first(record, _BEGINNINGS)
    moment = begun if begun is not None else _first(record, _ENDS)
    path = caddy.get("uri", record.get("RequestPath", record.get("request_uri", request)))
    target = _target(path)
    status = _text(record.get("status", record.get("DownstreamStatus")))
    agent = _agent(caddy.get("headers"), record)
    found = {"time": moment, "target": target, "status": status, "agent": agent}
    lacking = [kind for kind, value in found.items() if value is None]
    missing.update(lacking)
    if moment is None or target is None or status is None or agent is None:
        return None
    blur = 1 if isinstance(moment, int) else FINE
    took = _duration(record)
    fields = (target, status, agent, _address(caddy, record))
    return line_of(moment, took, blur, fields, is_end=begun is None)


def _first(record: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    found = (_moment(record[key]) for key in keys if key in record)
    return next((moment for moment in found if moment is not None), None)


def _moment(value: object) -> float | None:
    """Return a time as epoch seconds, an integer if it has whole seconds; None if it is none."""
    number = _number(value)
    if number is not None and number >= 0:
        while number > _LATEST:
            number /= 1000
        return whole(number)
    written = value.encode() if isinstance(value, str) else b""
    return second_of(written) if _STAMP.fullmatch(written) else moment_of(written)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _duration(record: dict[str, Any]) -> float | None:
    for key, unit in (("Duration", 1e-9), ("duration", 1.0), ("request_time", 1.0)):
        number = _number(record.get(key))
        if number is not None and 0 <= number * unit < _LATEST:
            return number * unit
    return None


def _target(value: object) -> bytes | None:
    """Return a target, of a request line too."""
    if not isinstance(value, str):
        return None
    words = value.split(" ")
    return _text(words[1] if len(words) > 1 and not value.startswith("/") else value)


def _text(value: object) -> bytes | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value).encode("utf-8", "replace")


def _address(caddy: dict[str, Any], record: dict[str, Any]) -> bytes:
    written = caddy.get("client_ip", caddy.get("remote_ip", record.get("ClientHost")))
    return _text(written or record.get("remote_addr")) or b""


def _agent(headers: object, record: dict[str, Any]) -> bytes | None:
    """Return the User-Agent; `-` if the log has the headers of this request, but not that one."""
    if isinstance(headers, dict):
        values = next((headers[name] for name in headers if name.lower() == "user-agent"), "")
        return _text(values[0] if isinstance(values, list) and values else values) or NAMELESS
    written = _text(record.get("request_User-Agent", record.get("http_user_agent")))
    return NAMELESS if written == b"" else written
