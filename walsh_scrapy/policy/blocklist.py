"""The blocklist: domains whose owners opted out, for example by mail (R3, decisions 14 and 31).

A document is adopted whole or not at all. If one is refused, the caller keeps the last good one.
One that was adopted is kept as a text of its entries, and is not judged again.

The operator's own blocklist adds to the published one. It is a text with a domain per line, and
can only block: nothing in it takes an entry of the published list away.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, ClassVar, Final

from walsh_scrapy.policy.blocklist_schema import (
    is_domain,
    schema_error,
    sound_schema,
    strict_json,
)
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import format_ip, host_of
from walsh_scrapy.policy.wording import cut, for_others, printable, storable

#: The limits of `Blocklist.refresh`.
SHORTEST_REFRESH: Final = timedelta(minutes=1)
LONGEST_REFRESH: Final = timedelta(days=7)
#: `Blocklist.refresh` of a document whose own makes no sense.
DEFAULT_REFRESH: Final = "PT6H"

#: Characters of a reason, or of the day of an opt-out, that are kept to be shown.
LONGEST_REASON: Final = 200

_HOST: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|[0-9a-f:]+")
#: A domain that `host_of` would return as it is: its last label begins with a letter. A-labels are
#: left to `host_of`.
_PLAIN_DOMAIN: Final = re.compile(
    r"(?:(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)++(?!xn--)[a-z][a-z0-9]{0,62}"
)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class InvalidBlocklist(ValueError):
    """A document that must not be adopted. The message says where it is wrong, and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One opt-out."""

    domain: str  #: as `host_of` returns hosts
    added: str = ""  #: the date, as in the document; "" if it has none
    reason: str = ""  #: "" if the document has none

    @property
    def why(self) -> str:
        """Why the domain gets no request, as a sentence without a point."""
        day, reason = self.added or "an unknown day", self.reason or "no reason"
        return f"{self.domain} opted out on {day}: {reason}"


@dataclass(frozen=True, slots=True)
class LocalEntry(Entry):
    """A domain that the operator blocks; ``place`` is where: `line 3 of blocklist.txt`."""

    place: str = ""

    @property
    def why(self) -> str:
        """Why the domain gets no request, as a sentence without a point."""
        because = f": {self.reason}" if self.reason else ""
        return f"{self.domain} is in {self.place}{because}"


@dataclass(frozen=True, slots=True)
class Blocklist:
    """The domains that get no requests, and how long the list may be used.

    `refresh` is the document's, but at least one minute, so that the list is not requested more
    often, and at most seven days, so that a mistake (`P10W`) does not delay opt-outs for weeks.
    """

    entries: Mapping[str, Entry] = field(repr=False)
    refresh: timedelta
    problem: str = ""  #: what was put right in the document, as a sentence; "" if nothing

    #: The list before the first one was fetched: it blocks nothing, and is due after an hour.
    EMPTY: ClassVar["Blocklist"]

    @classmethod
    def parse(cls, body: bytes, schema: dict[str, Any] | None = None) -> "Blocklist":
        """Read a `walsh-research-blocklist/v1` document.

        It has to be valid under the bundled schema and, if given, the published `schema`, which is
        ignored if it cannot be used (`blocklist_schema` says when). A `refresh` that makes no sense
        counts as `DEFAULT_REFRESH`: a slip there must not keep opt-outs back. Raises
        InvalidBlocklist.

        >>> Blocklist.parse(b"[]")
        Traceback (most recent call last):
        walsh_scrapy.policy.blocklist.InvalidBlocklist: the blocklist is invalid at $: ...
        """
        document, refresh, problem = _with_refresh(_load(body))
        if error := schema_error(document, schema):
            raise _invalid(error)
        entries: dict[str, Entry] = {}
        for index, item in enumerate(document["blocked"]):
            entry = _entry_of(item)
            if entry is None:
                why = f"{item['domain']!r} is not a host name"
                raise _invalid(f"$.blocked[{index}].domain: {why}")
            entries.setdefault(entry.domain, entry)
        return cls(entries, refresh, problem)

    def text(self) -> str:
        r"""Return the list as the state keeps it: sorted, one entry per line (decision 14).

        What is shown of an entry has no tabs and line feeds: they are escaped.
        """
        head = json.dumps([self.refresh.total_seconds(), self.problem])
        entries = (f"{each.domain}\t{each.added}\t{each.reason}" for each in self.entries.values())
        return "\n".join([head, *sorted(entries)])

    @classmethod
    def of_text(cls, text: str) -> "Blocklist":
        """Return the list that ``text`` wrote."""
        head, *lines = text.split("\n")
        seconds, problem = json.loads(head)
        entries = (Entry(*line.split("\t")) for line in lines)
        return cls({each.domain: each for each in entries}, timedelta(seconds=seconds), problem)

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


def adopted_text(body: bytes, published: bytes | None = None) -> str:
    """Return the list in a document as the state keeps it.

    ``published`` is a schema, under which the document has to be valid too; see `Blocklist.parse`.
    Raises InvalidBlocklist. May take long, so a crawl calls it in a process of its own.
    """
    schema = None if published is None else sound_schema(published)
    return Blocklist.parse(body, schema).text()


def parse_local(body: bytes, name: str) -> Blocklist:
    """Read the operator's own list; ``name`` is that of its file.

    It has a domain per line; `#` begins a comment, and one behind a domain is its reason. Raises
    InvalidBlocklist with the file, the line, and the reason.
    """
    try:
        found = _entries_of(body, name)
    except InvalidBlocklist as error:
        raise InvalidBlocklist(f"{name}: {error}") from None
    entries: dict[str, Entry] = {}
    for entry in found:
        entries.setdefault(entry.domain, entry)
    return Blocklist(entries, Blocklist.EMPTY.refresh)


def _entries_of(body: bytes, name: str) -> list[LocalEntry]:
    body = body.removeprefix(BOM_UTF8)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        number = len(_LINE_END.split(body[: error.start].decode("utf-8")))
        raise InvalidBlocklist(f"line {number}: it is not UTF-8; save it as UTF-8") from None
    entries = []
    for number, line in enumerate(_LINE_END.split(text), 1):
        before, _, behind = line.partition("#")
        domain, reason = before.strip(), behind.strip()
        if not domain:
            continue
        entry = _entry_of({"domain": domain, "reason": reason}) if is_domain(domain) else None
        if entry is None:
            raise InvalidBlocklist(
                f"line {number}: {domain[:80]!r} is not a host name (write one a line, without "
                "scheme, port, path and wildcard)"
            )
        place = f"line {number} of {name}"
        entries.append(LocalEntry(entry.domain, reason=entry.reason, place=place))
    return entries


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


def _with_refresh(document: Any) -> tuple[Any, timedelta, str]:  # noqa: ANN401 - JSON
    """Return a document with a `refresh` that can be read, its length, and what was wrong."""
    problem = ""
    if isinstance(document, dict):
        said = document.get("refresh")
        try:
            asked = parse_duration(said if isinstance(said, str) else "")
        except ValueError:
            problem = f"$.refresh is {said!r:.40}, which is no duration; {DEFAULT_REFRESH} is used"
            document = document | {"refresh": DEFAULT_REFRESH}
            asked = parse_duration(DEFAULT_REFRESH)
    else:
        asked = Blocklist.EMPTY.refresh
    return document, min(max(asked, SHORTEST_REFRESH), LONGEST_REFRESH), problem


def _entry_of(item: dict[str, Any]) -> Entry | None:
    """Return the entry of an item whose domain is a text; None if that is not a host name."""
    domain: str = item["domain"]
    added, reason = _display(item.get("added")), _display(item.get("reason"))
    if _PLAIN_DOMAIN.fullmatch(domain) and len(domain) <= 253:
        return Entry(domain, added, reason)
    netloc = f"[{domain.strip('[]')}]" if ":" in domain else domain
    host = host_of(f"http://{netloc}/")
    if not _HOST.fullmatch(host):
        return None
    return Entry(_mapped_ipv4(host) or host, added, reason)


def _display(text: object) -> str:
    """Return what an entry says, as it is shown to operators."""
    return _cached_display(str(text)) if text else ""


@lru_cache(maxsize=64)  # most entries of a list have the same reason, and share one text
def _cached_display(text: str) -> str:
    return cut(for_others(printable(storable(text))), LONGEST_REASON)


def _mapped_ipv4(host: str) -> str:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; "" for any other host."""
    mapped = IPv6Address(host).ipv4_mapped if ":" in host else None
    return format_ip(mapped) if mapped else ""
