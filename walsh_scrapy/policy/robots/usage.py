"""What a robots.txt says about the use of what was fetched: Content-Signal, TDMRep and the like.

No rule of R1 to R9 asks for more than to know of it: metadata only is kept (R6). So these records
change no verdict. They are shown to the operator, and the copies of decision 33 have them.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from walsh_scrapy.policy.robots.records import decode, line_numbers, record_at

#: Records that are returned; a file may have thousands.
MOST_RECORDS: Final = 20
#: `Content-Signal` (contentsignals.org), `Content-Usage` (IETF aipref), `ai-usage`, and the names
#: of the TDM Reservation Protocol.
_KEYS: Final = "content-signals?|content-usage|ai-usage|tdm-reservation|tdm-policy|tdmrep"
_RECORD: Final = re.compile(rf"\n[ \t\v\f]*+(?:{_KEYS})[ \t\v\f]*+:", re.IGNORECASE | re.ASCII)


class UsageRecord(NamedTuple):
    """One record about use."""

    line: int  #: from 1
    text: str  #: as the site wrote it, printable, without its comment


def usage_records(body: bytes) -> tuple[UsageRecord, ...]:
    """Return the records about use in a robots.txt, in order, at most `MOST_RECORDS`.

    They count for the whole file, whichever group they stand in. Never raises.
    """
    return tuple(_records(decode(body)))


def _records(text: str) -> Iterator[UsageRecord]:
    found = (record.start() for record in _RECORD.finditer(text))
    offsets = [offset for offset, _ in zip(found, range(MOST_RECORDS), strict=False)]
    for line, offset in zip(line_numbers(text, offsets), offsets, strict=True):
        yield UsageRecord(line, record_at(text, offset))
