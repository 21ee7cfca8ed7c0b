"""A fetched blocklist is read without standing in the way of the crawl (R3, decision 34).

A short one is read at once. A long one is read in a process of its own, and comes back as lines,
from which the list is built in a thread.
"""

from __future__ import annotations

import asyncio
from typing import Final

from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist, public_suffixes
from walsh_scrapy.politeness import limitedprocess
from walsh_scrapy.politeness.limitedprocess import Limits

#: Bytes that are read at once. That takes less than 0.2 s, whatever they say.
SHORT: Final = 256 * 1024
#: Entries that are looked through at once; that takes a few milliseconds.
SOME: Final = 10_000
#: What a longer list may cost. One with 1,000,000 domains needs 4 s and 430 MB.
LIMITS: Final = Limits(seconds=20, memory=2**30)
_GOOD, _BAD = b"+", b"-"


async def read_list(body: bytes) -> Blocklist:
    """Return the list in a document. Raises InvalidBlocklist, also if reading costs too much."""
    if len(body) <= SHORT:
        return Blocklist.parse(body)
    try:
        result = await limitedprocess.answer(__name__, body, LIMITS)
    except limitedprocess.TooCostly as error:
        raise InvalidBlocklist(f"the blocklist cannot be read: {error}") from error
    if result.startswith(_BAD):
        raise InvalidBlocklist(result[1:].decode("utf-8"))
    return await asyncio.to_thread(Blocklist.of_lines, result[1:])


async def suffixes_in(blocklist: Blocklist) -> list[str]:
    """Return the entries of a list that cover a public suffix, sorted."""
    domains = blocklist.entries.keys()
    if len(domains) <= SOME:
        return public_suffixes(domains)
    return await asyncio.to_thread(public_suffixes, domains)


def answer(question: bytes) -> bytes:
    """Return the lines of the list in a document, or why it is invalid, after a mark."""
    try:
        return _GOOD + Blocklist.parse(question).lines()
    except InvalidBlocklist as error:
        return _BAD + str(error).encode("utf-8", "backslashreplace")
