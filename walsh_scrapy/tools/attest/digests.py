"""Digests of the judged record, by which it can be recognised later (`--verify`).

Each day of the log and each month of the entries has a digest of its own. So what becomes too old
and is deleted changes no other digest, and neither does what is written later.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from walsh_scrapy.policy.audit.judgements import LOG, Digest, begin_of, day_of, month_of
from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.wording import count_of, cut
from walsh_scrapy.state.auditrecord import Bounds
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.files import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.policy.signing.keys import PrivateKey
    from walsh_scrapy.state.log import Log

#: The version of the JSON.
FORMAT: Final = "walsh-research-attestation/v1"

_Row = TypeVar("_Row", bound="Sequence[Any]")
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
#: Members that the seal does not cover: itself, and the signature of it.
_AFTER_SEAL: Final = ("seal", "signature")
#: Changed periods that are named; others are counted.
MOST_NAMED: Final = 10


#: The digests of the record: by table, then by period: a day, a month, or "all".
Digests: TypeAlias = "dict[str, dict[str, Digest]]"


class Digester:
    """Takes the rows of each table in their order, and makes a digest of each period."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, tuple[int, Any]]] = {table: {} for table in _PERIODS}

    def passed(self, table: str, rows: Iterable[_Row]) -> Iterator[_Row]:
        """Yield the rows of a table unchanged."""
        found = self._found[table]
        for period, group in groupby(rows, _PERIODS[table]):
            count, digest = found.get(period, (0, sha256()))
            for row in group:
                count += 1
                digest.update(f"{_encode(row)}\n".encode())
                yield row
            found[period] = count, digest

    def take(self, table: str, rows: Iterable[_Row]) -> None:
        """Take all rows of a table."""
        deque(self.passed(table, rows), maxlen=0)

    def digests(self) -> Digests:
        """Return the digest of each period that has rows, by table."""
        return {
            table: {name: Digest(count, digest.hexdigest()) for name, (count, digest) in of.items()}
            for table, of in self._found.items()
        }


#: The period of a row of each table; times are in UTC.
_PERIODS: Final[dict[str, Callable[[Any], str]]] = {
    "requests": lambda row: day_of(row.sent_at),
    "denials": lambda row: day_of(row.at),
    "entries": lambda row: month_of(row.first_seen),
    "runs": lambda _row: "all",
    "ends": lambda _row: "all",
    "acts": lambda _row: "all",
    "sources": lambda _row: "all",
}


def take_all(digester: Digester, log: Log, bounds: Bounds) -> None:
    """Take the tables that an audit does not read row by row."""
    digester.take("runs", log.run_rows(bounds))
    digester.take("ends", log.run_ends(bounds))
    digester.take("acts", log.acts(bounds))
    digester.take("sources", log.source_rows(bounds))


def seal(record: Mapping[str, object]) -> str:
    """Return the SHA-256 of a JSON object, whatever the order of its members."""
    return sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def signed_text(attestation: Mapping[str, Any]) -> str:
    """Return what the signature of an attestation is of: its format, a space, and its seal."""
    return f"{attestation['format']} {attestation['seal']}"


def sign(attestation: Mapping[str, Any], key: PrivateKey) -> dict[str, Any]:
    """Return the attestation with a signature (Ed25519) by the key of the bot."""
    value = b64encode(key.sign(signed_text(attestation))).decode("ascii")
    return {**attestation, "signature": {"keyid": key.public.thumbprint, "value": value}}


def check_signature(attestation: Mapping[str, Any], directory: bytes) -> str:
    """Return the id of the key that signed an attestation.

    ``directory`` is the JSON Web Key Set that the bot publishes. Raises CommandError if the
    attestation is not signed by one of its keys.
    """
    from walsh_scrapy.policy.signing.verification import BadDirectory, KeySet

    try:
        keys = KeySet.from_body(directory).keys
    except BadDirectory as error:
        raise CommandError(f"the directory {error}") from None
    signature = attestation.get("signature")
    if signature is None:
        raise CommandError("the attestation has no signature: it was made without --sign")
    name, value = signature["keyid"], b64decode(signature["value"])
    if name not in keys:
        raise CommandError(
            f"the attestation is signed by {name}, which the directory does not have"
        )
    if not keys[name].has_signed(signed_text(attestation), value):
        raise CommandError(f"the signature of the attestation is not by {name}")
    return str(name)


@dataclass(slots=True)
class Comparison:
    """What is left of the judged record: names of periods, such as `requests of 2026-05-23`."""

    same: int = 0  #: periods that are as they were judged
    deleted: list[str] = field(default_factory=list)  #: too old: all or part may be deleted
    changed: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what was found, in words."""
        lines = [f"{count_of(self.same, 'part')} of the record as judged"]
        if self.deleted:
            left = count_of(len(self.deleted), "part")
            lines.append(f"{left} older than WALSH_LOG_DAYS, which runs have deleted since")
        lines += [f"changed: {name}" for name in self.changed[:MOST_NAMED]]
        if len(self.changed) > MOST_NAMED:
            lines.append(f"… and {len(self.changed) - MOST_NAMED} more have changed")
        return lines


def read_attestation(name: str) -> dict[str, Any]:
    """Read an attestation. Raises CommandError for a file that is none, or was changed."""
    from jsonschema import Draft202012Validator

    attestation = read_json(name)
    schema = (files("walsh_scrapy.tools.attest") / "attestation.schema.json").read_text("utf-8")
    wrong = next(Draft202012Validator(json.loads(schema)).iter_errors(attestation), None)
    if wrong is not None:
        why = f"{wrong.json_path}: {cut(wrong.message, 200)}"
        raise CommandError(f"{name} is no attestation ({FORMAT}): {why}")
    rest = {name: value for name, value in attestation.items() if name not in _AFTER_SEAL}
    if seal(rest) != attestation["seal"]:
        raise CommandError(f"{name} was changed after it was written: its seal does not fit")
    return dict(attestation)


def compare(log: Log, record: Mapping[str, Any], now: float) -> Comparison:
    """Compare the record with an attestation's ``record``; ``now`` is in epoch seconds.

    A day of the log that runs may have deleted since, because it is older than the
    `WALSH_LOG_DAYS` that the attestation names, counts as deleted if it has fewer rows than were
    judged. What the state says now of runs and settings excuses nothing.
    """
    bounds, digester = Bounds(**record["bounds"]), Digester()
    digester.take("requests", log.requests_by_time(bounds))
    digester.take("denials", log.denials_by_time(bounds))
    digester.take("entries", log.entries(bounds))
    take_all(digester, log, bounds)
    found = digester.digests()
    pruned_until = 0.0 if record["log_days"] is None else now - record["log_days"] * DAY
    lost = set(log.missing_copies(bounds, pruned_until)).difference(record["missing_copies"])
    comparison = Comparison(changed=[f"copies: {name} is not kept" for name in sorted(lost)])
    for table, periods in record["digests"].items():
        for period in sorted(periods.keys() | found[table].keys()):
            judged = Digest(**periods[period]) if period in periods else Digest(0, "")
            left = found[table].get(period, Digest(0, ""))
            name = table if period == "all" else f"{table} of {period}"
            if left == judged:
                comparison.same += 1
            elif table in LOG and begin_of(period) < pruned_until and left.rows < judged.rows:
                comparison.deleted.append(name)
            else:
                comparison.changed.append(name)
    return comparison
