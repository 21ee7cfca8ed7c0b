"""The fetched blocklist and its schema are read without standing in the way (R3, decision 34).

A short list is read at once. A long one is read in an isolated process, and comes back as lines,
from which the list is built in a thread. The published schema is always applied in that process,
because a schema can cost any time: a pattern that backtracks for ever, or a tree of `$ref`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from walsh_scrapy.crawl.engine import is_stopping
from walsh_scrapy.crawl.isolated import CostLimits, Interrupted, IsolatedProcess, TooCostly
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

#: Bytes that are read at once. That takes less than 0.2 s, whatever they say.
SHORT: Final = 256 * 1024
#: What a longer list may cost. One with 1,000,000 domains needs 4 s and 430 MB.
LIST_LIMITS: Final = CostLimits(seconds=20, memory=2**30)
#: What the check of a list under the published schema may cost.
SCHEMA_LIMITS: Final = CostLimits(seconds=4, memory=2**30)
#: Bytes of a published schema; a larger one is not used. The bundled one has 2,000.
LONGEST_SCHEMA: Final = 256 * 1024


class SchemaNotUsed(Exception):
    """The published schema costs too much, so the bundled one alone counts."""


async def read_list(body: bytes) -> Blocklist:
    """Return the list in a document. Raises InvalidBlocklist, also if reading costs too much."""
    if len(body) <= SHORT:
        return Blocklist.parse(body)
    try:
        lines = await _isolated(LIST_LIMITS, _lines_of, body)
    except TooCostly as error:
        raise InvalidBlocklist(f"the blocklist cannot be read: that {error}") from error
    return await asyncio.to_thread(Blocklist.of_lines, lines)


async def published_error(body: bytes, schema: bytes) -> str | None:
    """Return why a blocklist is invalid under a published schema; None if it is valid.

    A schema that is not sound is ignored (decision 14). Raises SchemaNotUsed.
    """
    if len(schema) > LONGEST_SCHEMA:
        raise SchemaNotUsed(f"it has {len(schema)} bytes, more than {LONGEST_SCHEMA}")
    try:
        await _isolated(SCHEMA_LIMITS, _check, body, schema)
    except InvalidBlocklist as error:
        return str(error)
    except TooCostly as error:
        raise SchemaNotUsed(f"the check {error}") from error
    return None


async def _isolated(
    limits: CostLimits, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return the result of one call in a process that ends afterwards. Raises TooCostly."""
    process = IsolatedProcess(limits, is_stopping)
    try:
        return await process.call(function, *args, **kwargs)
    except Interrupted as error:
        raise TooCostly("was stopped with the crawl") from error
    except OSError as error:
        raise TooCostly(f"needs a process, and none could be started: {error.strerror}") from error
    finally:
        process.close()


def _lines_of(body: bytes) -> bytes:
    return Blocklist.parse(body).lines()


def _check(body: bytes, schema: bytes) -> None:
    # jsonschema takes long to import, and the crawl itself applies no published schema.
    from walsh_scrapy.policy.blocklist_schema import sound_schema  # noqa: PLC0415

    Blocklist.parse(body, sound_schema(schema))
