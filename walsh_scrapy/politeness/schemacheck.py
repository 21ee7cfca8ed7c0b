"""The blocklist under its published schema, in a process that is given up (R3, decision 34).

A schema can cost any time: a pattern that backtracks for ever, or a tree of `$ref`.
"""

from __future__ import annotations

import struct
from typing import Final

from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist, sound_schema
from walsh_scrapy.politeness import limitedprocess
from walsh_scrapy.politeness.limitedprocess import Limits

#: What the check may cost.
LIMITS: Final = Limits(seconds=4, memory=2**30)
#: Bytes of a published schema; a larger one is not used. The bundled one has 2,000.
LONGEST_SCHEMA: Final = 256 * 1024
_LENGTH: Final = struct.Struct("!I")


class SchemaNotUsed(Exception):
    """The published schema costs too much, so the bundled one alone counts."""


async def published_error(body: bytes, schema: bytes) -> str | None:
    """Return why a blocklist is invalid under a published schema; None if it is valid.

    A schema that is not sound is ignored (decision 14). Raises SchemaNotUsed.
    """
    if len(schema) > LONGEST_SCHEMA:
        raise SchemaNotUsed(f"it has {len(schema)} bytes, more than {LONGEST_SCHEMA}")
    question = _LENGTH.pack(len(schema)) + schema + body
    try:
        error = await limitedprocess.answer(__name__, question, LIMITS)
    except limitedprocess.TooCostly as why:
        raise SchemaNotUsed(str(why)) from why
    return error.decode("utf-8") or None


def answer(question: bytes) -> bytes:
    """Return the error of a blocklist under a schema; both follow the schema's length."""
    start = _LENGTH.size
    end = start + _LENGTH.unpack(question[:start])[0]
    try:
        Blocklist.parse(question[end:], sound_schema(question[start:end]))
    except InvalidBlocklist as error:
        return str(error).encode("utf-8", "backslashreplace")
    return b""
