"""The blocklist: domains whose owners opted out, for example by mail (R3, decision 14).

A document is adopted whole or not at all. If one is refused, the caller keeps the last good one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv6Address
from typing import Any, ClassVar, Final

from walsh_scrapy.policy.blocklist_schema import schema_error, sound_schema, strict_json
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.networks import format_ip
from walsh_scrapy.policy.urls import host_of

__all__ = ["Blocklist", "Entry", "InvalidBlocklist", "sound_schema"]

#: The limits of `Blocklist.refresh`.
SHORTEST_REFRESH: Final = timedelta(minutes=1)
LONGEST_REFRESH: Final = timedelta(days=7)

_HOST: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|[0-9a-f:]+")


class InvalidBlocklist(ValueError):
    """A document that must not be adopted. The message says where it is wrong, and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One opt-out."""

    domain: str  #: as `host_of` returns hosts
    added: str = ""  #: the date, as in the document; "" if it has none
    reason: str = ""  #: "" if the document has none


@dataclass(frozen=True, slots=True)
class Blocklist:
    """The domains that get no requests, and how long the list may be used.

    `refresh` is the document's, but at least one minute, so that the list is not requested more
    often, and at most seven days, so that a mistake (`P10W`) does not delay opt-outs for weeks.
    """

    entries: Mapping[str, Entry] = field(repr=False)
    refresh: timedelta

    #: The list before the first one was fetched: it blocks nothing, and is due after an hour.
    EMPTY: ClassVar["Blocklist"]

    @classmethod
    def parse(cls, body: bytes, schema: dict[str, Any] | None = None) -> "Blocklist":
        """Read a `walsh-research-blocklist/v1` document.

        It has to be valid under the bundled schema and, if given, the published `schema`, which is
        ignored if it cannot be used (see `sound_schema`). Raises InvalidBlocklist.

        >>> Blocklist.parse(b"[]")
        Traceback (most recent call last):
        walsh_scrapy.policy.blocklist.InvalidBlocklist: the blocklist is invalid at $: ...
        """
        document = _load(body)
        if error := schema_error(document, schema):
            raise _invalid(error)
        entries: dict[str, Entry] = {}
        for index, item in enumerate(document["blocked"]):
            entry = _entry(item, index)
            entries.setdefault(entry.domain, entry)
        return cls(entries, _refresh(document["refresh"]))

    def blocks(self, url: str) -> Entry | None:
        """Return the entry that blocks a URL, by its host or a parent domain of it; else None (R3).

        IP addresses have no parent domains. Never raises.
        """
        host = host_of(url)
        if entry := self.entries.get(host):
            return entry
        if ":" in host or host.rpartition(".")[2].isdigit():  # an IP address
            return self.entries.get(_mapped_ipv4(host))
        while host := host.partition(".")[2]:
            if entry := self.entries.get(host):
                return entry
        return None

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return True  # also without entries


Blocklist.EMPTY = Blocklist({}, timedelta(hours=1))


def _load(body: bytes) -> Any:  # noqa: ANN401 - JSON not yet checked
    try:
        return strict_json(body)
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = str(error)
    raise InvalidBlocklist(f"the blocklist is not JSON: {why}")


def _invalid(error: str) -> InvalidBlocklist:
    return InvalidBlocklist(f"the blocklist is invalid at {error}")


def _refresh(text: str) -> timedelta:
    try:
        asked = parse_duration(text)
    except ValueError as error:
        raise _invalid(f"$.refresh: {error}") from None
    return min(max(asked, SHORTEST_REFRESH), LONGEST_REFRESH)


def _entry(item: dict[str, Any], index: int) -> Entry:
    domain = item["domain"]
    netloc = f"[{domain.strip('[]')}]" if ":" in domain else domain
    host = host_of(f"http://{netloc}/")
    if not _HOST.fullmatch(host):
        raise _invalid(f"$.blocked[{index}].domain: {domain!r} is not a host name")
    return Entry(
        _mapped_ipv4(host) or host,
        _storable(item.get("added", "")),
        _storable(item.get("reason", "")),
    )


def _storable(text: str) -> str:
    """Replace lone surrogates, which JSON can contain, but a log or a database cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _mapped_ipv4(host: str) -> str:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; "" for any other host."""
    mapped = IPv6Address(host).ipv4_mapped if ":" in host else None
    return format_ip(mapped) if mapped else ""
