"""The blocklist under its published schema, in a process that is given up (R3, decision 34).

A schema can cost any time: a pattern that backtracks for ever, or a tree of `$ref`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Final

from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist, sound_schema

if sys.platform != "win32":
    import resource

#: Seconds of CPU, and bytes of memory, that the check may cost.
MOST_SECONDS: Final = 4
MOST_MEMORY: Final = 2**30
#: Seconds after which it is given up on a machine that does not get to it.
_PATIENCE: Final = 60.0
#: Bytes of a published schema; a larger one is not used. The bundled one has 2,000.
LONGEST_SCHEMA: Final = 256 * 1024
_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from walsh_scrapy.politeness.schemacheck import main; main({size}, {seconds}, {memory})"
)


class SchemaNotUsed(Exception):
    """The published schema costs too much, so the bundled one alone counts."""


async def published_error(body: bytes, schema: bytes) -> str | None:
    """Return why a blocklist is invalid under a published schema; None if it is valid.

    A schema that is not sound is ignored (decision 14). Raises SchemaNotUsed.
    """
    if len(schema) > LONGEST_SCHEMA:
        raise SchemaNotUsed(f"it has {len(schema)} bytes, more than {LONGEST_SCHEMA}")
    return await asyncio.to_thread(_run, body, schema)


def _run(body: bytes, schema: bytes) -> str | None:
    limits = {"seconds": MOST_SECONDS, "memory": MOST_MEMORY}
    program = _PROGRAM.format(path=sys.path, size=len(schema), **limits)
    try:
        done = subprocess.run(  # noqa: S603 - our own program, by our own interpreter
            [sys.executable, "-c", program],
            input=schema + body,
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise SchemaNotUsed(
            f"the check needs more than {MOST_SECONDS} s or {MOST_MEMORY >> 20} MiB"
        ) from error
    return done.stdout.decode("utf-8", "backslashreplace") or None


def main(size: int, seconds: int, memory: int) -> None:
    """Check the blocklist on standard input, which follows a schema of ``size`` bytes.

    The process ends after ``seconds`` of CPU, and if it needs more than ``memory`` bytes.
    """
    if sys.platform != "win32":  # there the time limit alone counts
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    schema, body = sys.stdin.buffer.read(size), sys.stdin.buffer.read()
    try:
        Blocklist.parse(body, sound_schema(schema))
    except InvalidBlocklist as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "backslashreplace"))
