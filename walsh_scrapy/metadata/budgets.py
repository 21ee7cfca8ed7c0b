"""The budget of a document (decision 34): what is read of one, and what is kept.

The lengths of texts are in `metadata.text`, the limits of markdown in `metadata.llms`. Of a feed
with too many entries the newest are read. A document that is beyond another budget is refused,
because no feed is like that.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final, TypeVar

MOST_ENTRIES: Final = 10_000  #: of one document; of more, the newest are kept
MOST_ELEMENTS: Final = 400_000  #: of an XML document; real feeds of 15 MiB have half as many
MOST_ATTRIBUTES: Final = 100  #: of one element, because feedparser is quadratic in them
MOST_ATTRIBUTES_IN_ALL: Final = 400_000  #: of the elements that are read
MOST_DEPTH: Final = 1000  #: of elements in elements, in well-formed XML
#: Characters of the bases, summed over the links that are resolved against them. A relative link
#: becomes as long as its base.
MOST_BASE_CHARACTERS: Final = 8_000_000
MOST_VALUES: Final = 800_000  #: of a JSON document: its objects, lists and other values

T = TypeVar("T")


class OverBudget(Exception):
    """The document is beyond a budget. The message says of what: `XML of more than 9 elements`."""


def newest(entries: Sequence[T], date: Callable[[T], str | None]) -> tuple[T, ...]:
    """Return the newest `MOST_ENTRIES` in document order.

    `date` returns RFC 3339 in UTC. Entries without a date count as the oldest, and of entries with
    the same date the first ones are kept, because feeds begin with the newest.
    """
    if len(entries) <= MOST_ENTRIES:
        return tuple(entries)
    dates = [date(entry) or "" for entry in entries]
    order = sorted(range(len(entries)), key=dates.__getitem__, reverse=True)  # stable
    kept = bytearray(len(entries))
    for at in order[:MOST_ENTRIES]:
        kept[at] = 1
    return tuple(compress(entries, kept))
