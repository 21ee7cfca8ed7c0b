"""The operator's own blocklist, which adds to the published one (R3, decision 31).

It is a document like the published one, or a text with a domain a line. It can only block: nothing
in it takes an entry of the published list away.
"""

import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Final

from walsh_scrapy.policy.blocklist import Blocklist, Entry, InvalidBlocklist, entry_of
from walsh_scrapy.policy.blocklist_document import is_domain, strict_json

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

    If it ends in `.json`, the file has the form of the published list. Any other has a domain a
    line; `#` begins a comment, and one behind a domain is its reason. Raises InvalidBlocklist with
    the file, the line or the entry, and the reason.
    """
    try:
        found = _of_json(body, name) if name.lower().endswith(".json") else _of_text(body, name)
    except InvalidBlocklist as error:
        raise InvalidBlocklist(f"{name}: {error}") from None
    entries: dict[str, Entry] = {}
    for entry in found:
        entries.setdefault(entry.domain, entry)
    return Blocklist(entries, Blocklist.EMPTY.refresh)


def _of_json(body: bytes, name: str) -> list[LocalEntry]:
    Blocklist.parse(body)  # so each entry below has a domain that can be read
    items = enumerate(strict_json(body)["blocked"])
    found = ((index, entry_of(item)) for index, item in items)
    return [_with_place(entry, f"$.blocked[{index}] of {name}") for index, entry in found if entry]


def _of_text(body: bytes, name: str) -> list[LocalEntry]:
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
        entries.append(_with_place(entry, f"line {number} of {name}"))
    return entries


def _with_place(entry: Entry, place: str) -> LocalEntry:
    return LocalEntry(entry.domain, entry.added, entry.reason, place)
