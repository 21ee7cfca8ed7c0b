"""The operator's own blocklist, which adds to the published one (R3, decision 31).

It is a text with a domain per line. It can only block: nothing in it takes an entry of the
published list away.
"""

import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Final

from walsh_scrapy.policy.blocklist import Blocklist, Entry, InvalidBlocklist, entry_of
from walsh_scrapy.policy.blocklist_document import is_domain

_LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class LocalEntry(Entry):
    """A domain that the operator blocks; ``place`` is where: `line 3 of blocklist.txt`."""

    place: str = ""

    @property
    def why(self) -> str:
        """Why the domain gets no request, as a sentence without a point."""
        because = f": {self.reason}" if self.reason else ""
        return f"{self.domain} is in {self.place}{because}"


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
        entry = entry_of({"domain": domain, "reason": reason}) if is_domain(domain) else None
        if entry is None:
            raise InvalidBlocklist(
                f"line {number}: {domain[:80]!r} is not a host name (write one a line, without "
                "scheme, port, path and wildcard)"
            )
        place = f"line {number} of {name}"
        entries.append(LocalEntry(entry.domain, reason=entry.reason, place=place))
    return entries
