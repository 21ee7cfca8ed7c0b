"""The operator's blocklist: opt-outs that reached us out of band (R3, decision 14).

A document is adopted whole or not at all; keeping the last good one is up to whoever holds it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv6Address
from typing import Any, ClassVar, Final

from walsh_scrapy.policy.blocklist_schema import fault, sound_schema, strict_json
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.networks import format_ip
from walsh_scrapy.policy.urls import host_of

__all__ = ["Blocklist", "Entry", "InvalidBlocklist", "sound_schema"]

#: Shorter and longer refresh times than these are read as these, see `Blocklist.refresh`.
SHORTEST_REFRESH: Final = timedelta(minutes=1)
LONGEST_REFRESH: Final = timedelta(days=7)

_HOST: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|[0-9a-f:]+")


class InvalidBlocklist(ValueError):
    """A document that may not be adopted; the message says where it is wrong, and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One opt-out: the domain as `host_of` spells hosts, the day it came and how ("" if unsaid)."""

    domain: str
    added: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Blocklist:
    """The domains nobody may be asked at, and for how long the list may be used.

    `refresh` is the document's own, between one minute and seven days: no list is asked for more
    often than that, and no slip (`P10W`) keeps an opt-out from being honoured for weeks.
    """

    entries: Mapping[str, Entry] = field(repr=False)
    refresh: timedelta

    #: No list was ever had: nothing is blocked, and an hour later one is asked for again.
    EMPTY: ClassVar["Blocklist"]

    @classmethod
    def parse(cls, body: bytes, schema: dict[str, Any] | None = None) -> "Blocklist":
        """Read a `walsh-research-blocklist/v1` document.

        It must satisfy the bundled schema and, if one is given, the published `schema` as well;
        one that turns out unsound (see `sound_schema`) is left aside. Raises InvalidBlocklist.
        """
        document = _load(body)
        if wrong := fault(document, schema):
            raise _invalid(wrong)
        entries: dict[str, Entry] = {}
        for index, item in enumerate(document["blocked"]):
            entry = _entry(item, index)
            entries.setdefault(entry.domain, entry)
        return cls(entries, _refresh(document["refresh"]))

    def blocks(self, url: str) -> Entry | None:
        """Return the entry that blocks a URL, by its host or any parent domain, or None (R3).

        Addresses match as a whole. Never raises.
        """
        host = host_of(url)
        if entry := self.entries.get(host):
            return entry
        if ":" in host or host.rpartition(".")[2].isdigit():  # addresses have no parent domains
            return self.entries.get(_carried_ipv4(host))
        while host := host.partition(".")[2]:
            if entry := self.entries.get(host):
                return entry
        return None

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        return True  # a list without entries is a list all the same


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


def _invalid(wrong: str) -> InvalidBlocklist:
    return InvalidBlocklist(f"the blocklist is invalid at {wrong}")


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
        raise _invalid(f"$.blocked[{index}].domain: {domain!r} is no host name")
    return Entry(
        _carried_ipv4(host) or host,
        _storable(item.get("added", "")),
        _storable(item.get("reason", "")),
    )


def _storable(text: str) -> str:
    """Replace lone surrogates, which JSON can spell but neither a log nor a database can keep."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _carried_ipv4(host: str) -> str:
    """Return the IPv4 address an IPv4-mapped IPv6 address stands for, "" for any other host."""
    carried = IPv6Address(host).ipv4_mapped if ":" in host else None
    return format_ip(carried) if carried else ""
