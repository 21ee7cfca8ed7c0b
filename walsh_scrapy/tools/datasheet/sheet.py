"""The data sheet of a collection: who asked whom for what, when and how, as the record has it.

Nothing is said that the record does not have. `datasheet.schema.json` describes the object.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy import __version__
from walsh_scrapy.policy.audit.declared import MissingPart
from walsh_scrapy.policy.audit.judgements import end_of
from walsh_scrapy.policy.audit.record import Bot
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import for_others
from walsh_scrapy.sources import Source
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.sourcerecord import KnownSources
from walsh_scrapy.tools.attest.attestation import attest, conclusion, grouped
from walsh_scrapy.tools.attest.audit import audit
from walsh_scrapy.tools.attest.digests import seal
from walsh_scrapy.tools.datasheet.tallies import EntryTally, RequestTally
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.sources.overview import declared_record
from walsh_scrapy.tools.why.account import Sender

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.audit.record import Basis, LoggedAct
    from walsh_scrapy.state import State
    from walsh_scrapy.state.auditrecord import Bounds
    from walsh_scrapy.state.log import DenialCount, Log
    from walsh_scrapy.state.sourcerecord import SourceRecord
    from walsh_scrapy.tools.attest.audit import Audited

#: The version of the JSON.
FORMAT: Final = "walsh-research-datasheet/v1"
#: Outcomes of visits that went well; other sources are named.
_GOOD: Final = ("fetched", "unchanged")
_NOT_VISITED: Final = "not visited"
#: The state has no visit of it: it was rewritten after a move, or forgotten, or its first visit
#: was cut off.
NOT_KNOWN: Final = "not known"


def build_sheet(
    state: State, log: Log, options: Options, now: float, since: float | None
) -> dict[str, Any]:
    """Return the data sheet of what was collected since then; both times are epoch seconds.

    Without ``since`` it is about the whole record. Raises CommandError if the record is empty.
    """
    begin = since or 0.0
    audited = audit(log, now, Bot(options.user_agent, options.ua_token), log.judgements())
    attestation = attest(log, audited)
    if not any(attestation["record"]["digests"].values()):
        raise CommandError("the record is empty, so there is nothing to describe")
    bounds, basis = audited.bounds, log.basis(audited.bounds)
    # What is left of older rows is no whole day, so nothing is counted of it.
    logged_since = max(begin, audited.pruned_until)
    sent, found = RequestTally(basis, logged_since), EntryTally()
    for request in log.requests_by_host(bounds):
        sent.see(request)
    for entry in log.entries(bounds):
        if entry.first_seen >= begin:
            found.see(entry)
    runs = list(_runs(log, bounds, begin, sent.runs | found.runs))
    declared, lost = _declared(runs, basis)
    span = TimeSpan(since=logged_since, until=bounds.until)
    return {
        "format": FORMAT,
        "made_by": f"walsh-scrapy {__version__}",
        "at": rfc3339(audited.at),
        "since": rfc3339(since),
        "until": rfc3339(bounds.until),
        "runs": _runs_told(runs),
        "identities": list(_identities(runs, options)),
        "versions": grouped((run.id, dict(run.versions)) for run in runs),
        "sources": _sources(state.sources.all(), declared, begin, sent.sources)
        | {"runs_not_known": lost},
        "entries": found.entries(),
        "log": _log(audited, begin, runs),
        "requests": sent.requests(),
        "pauses": sent.pauses() | {"operator": _operator(log.acts(bounds), begin)},
        "kept_back": list(_kept_back(log.denial_counts(span), set(map(host_of, declared)))),
        "attestation": _attested(attestation, begin),
    }


def _runs(log: Log, bounds: Bounds, since: float, named: Collection[int]) -> Iterator[RunRecord]:
    """Yield the runs that began since then, and those of before that rows since then name."""
    ends = {end.id: end for end in log.run_ends(bounds)}
    for row in log.run_rows(bounds):
        if since <= row.begun <= bounds.until or row.id in named:
            end = ends.get(row.id)
            yield RunRecord(
                id=row.id,
                spider=row.spider,
                command=row.command,
                begun=row.begun,
                ended=end and end.ended,
                how=end.how if end else "",
                versions=json.loads(row.versions),
                settings=json.loads(row.settings),
            )


def _runs_told(runs: Sequence[RunRecord]) -> dict[str, Any]:
    ends = [run.ended for run in runs if run.ended is not None]
    return {
        "crawls": sum(not run.command for run in runs),
        "by_hand": sum(bool(run.command) for run in runs),
        "first_began": rfc3339(min((run.begun for run in runs), default=None)),
        "last_ended": rfc3339(max(ends, default=None)),
        "ended": dict(sorted(Counter(run.how for run in runs if run.is_over).items())),
        "without_end": len(runs) - len(ends),
    }


def _identities(runs: Sequence[RunRecord], options: Options) -> Iterator[dict[str, Any]]:
    """Yield each identity that asked, with what it says of itself, the first one first."""
    for group in grouped((run.id, _identity(run, options)) for run in runs):
        yield {name: group[name] for name in ("runs", "first_run", "last_run")} | group["values"]


def _identity(run: RunRecord, options: Options) -> dict[str, Any]:
    sender = Sender.of([run], options)
    return {
        "contract": run.versions.get("contract"),
        "user_agent": sender.user_agents[0],
        "token": sender.token,
        "policy": sender.policy,
        "contact": sender.contact,
        "blocklist": sender.blocklist or None,
        "signing_key": run.settings.get("signing_key") or None,
    }


def _declared(runs: Iterable[RunRecord], basis: Basis) -> tuple[dict[str, str], int]:
    """Return the kinds of the sources that runs declared, and of how many runs that is lost."""
    names = Counter(run.settings.get("declared") for run in runs)
    kinds: dict[str, str] = {}
    lost = 0
    for name in filter(None, names):
        document = basis.documents.declared(name)
        try:
            kinds.update(document.sources() if document else ())
        except MissingPart:
            document = None
        lost += 0 if document else names[name]
    return kinds, lost


def _sources(
    records: Sequence[SourceRecord],
    declared: Mapping[str, str],
    since: float,
    asked: Collection[str],
) -> dict[str, Any]:
    """Count the sources by kind and by what came of their last visit, and name those in trouble.

    ``asked`` are those for which a request was sent since then.
    """
    known = KnownSources(records)
    found = [declared_record(Source(url, kind), known) for url, kind in declared.items()]  # type: ignore[arg-type]
    others = [
        each
        for each in known.others(declared)
        if each.url in asked or (each.fetched_at is not None and each.fetched_at >= since)
    ]
    counts: Counter[tuple[str, str]] = Counter()
    named = []
    for record in [*found, *others]:
        was_asked = record.url in asked
        is_visited = record.fetched_at is not None and record.fetched_at >= since
        if is_visited or (was_asked and record.is_refused):  # a refusal is no visit of its own
            outcome = record.outcome
        else:
            is_lost = was_asked and record.fetched_at is None
            outcome = NOT_KNOWN if is_lost else _NOT_VISITED
        counts[record.kind, outcome] += 1
        went_well = record.fetched_at is not None and record.outcome in _GOOD
        if outcome != NOT_KNOWN and not went_well:
            named.append(
                {
                    "url": for_others(record.url),
                    "kind": record.kind,
                    "outcome": outcome,
                    "status": record.status,
                    "detail": for_others(record.detail) or None,
                    "last_visit": rfc3339(record.fetched_at),
                }
            )
    return {
        "declared": len(found),
        "not_declared": len(others),
        "outcomes": [
            {"kind": kind, "outcome": outcome, "number": number}
            for (kind, outcome), number in sorted(counts.items())
        ],
        "in_trouble": sorted(named, key=lambda each: (each["outcome"], each["url"])),
    }


def _log(audited: Audited, since: float, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return from when on the log of requests and denials is whole."""
    begin = min((run.begun for run in runs), default=math.inf)
    is_cut = max(since, begin) < audited.pruned_until
    return {
        "days": sorted({run.settings["log_days"] for run in runs if "log_days" in run.settings}),
        "deleted_before": rfc3339(audited.pruned_until) if is_cut else None,
    }


def _operator(acts: Iterable[LoggedAct], since: float) -> dict[str, Any]:
    """Return what the operator did to hosts by hand (decision 31)."""
    done = [act for act in acts if act.at >= since]
    pauses = [act for act in done if act.act == "pause" and act.seconds]
    return {
        "pauses": len(pauses),
        "hosts": len({act.host for act in pauses}),
        "longest": max((act.seconds for act in pauses), default=None),
        "releases": sum(act.act == "release" for act in done),
    }


def _kept_back(
    counts: Iterable[DenialCount], declared: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield what each gate kept back. A host is named if a source is declared there."""
    by_gate: dict[str, list[DenialCount]] = {}
    for count in counts:
        by_gate.setdefault(count.gate, []).append(count)
    for gate, found in sorted(by_gate.items()):
        others = [each for each in found if each.host not in declared]
        yield {
            "gate": gate,
            "number": sum(each.number for each in found),
            "hosts": [
                {
                    "host": each.host,
                    "reason": for_others(each.reason),
                    "number": each.number,
                }
                for each in found
                if each.host in declared
            ],
            "not_named": {
                "hosts": len({each.host for each in others} - {""}),  # "" of data: and file:
                "number": sum(each.number for each in others),
            },
        }


def _attested(attestation: Mapping[str, Any], since: float) -> dict[str, Any]:
    """Return what the audit found in the whole record, and the digest of this part of it."""
    digests = {
        table: {
            period: digest
            for period, digest in periods.items()
            if period == "all" or end_of(period) > since
        }
        for table, periods in attestation["record"]["digests"].items()
    }
    names = ("row", "rule", "level", "requirement", "verdict")
    return {
        "bot": attestation["bot"],
        "contract": attestation["contract"],
        "holds": attestation["holds"],
        "conclusion": conclusion(attestation),
        "checklist": [{name: row[name] for name in names} for row in attestation["checklist"]],
        "changed": list(attestation["record"]["judged"]["changed"]),
        "record": seal(digests),
    }
