"""A data sheet as Markdown, by the questions of "Datasheets for Datasets"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.wording import and_more, count_of, cut, format_seconds, in_markdown
from walsh_scrapy.tools.datasheet.sheet import NOT_KNOWN
from walsh_scrapy.tools.report.figures import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: Rows of a list; the sheet says how many more there are, and the JSON has all.
MOST_ROWS: Final = 100
_LONGEST_CELL: Final = 600
_IDENTITY: Final = {
    "user_agent": "User-Agent",
    "token": "name in robots.txt",
    "contract": "contract",
    "policy": "policy",
    "contact": "contact",
    "blocklist": "blocklist",
    "signing_key": "key of its signatures",
}
_PURPOSES: Final = {
    "target": "for what sources declare",
    "robots": "for robots.txt",
    "blocklist": "for the blocklist or its schema",
}


def markdown(sheet: Mapping[str, Any]) -> str:
    """Return the sheet as one document; texts of strangers are escaped."""
    parts = (_head, _who, _when, _sources, _entries, _requests, _pauses, _kept_back, _versions)
    lines = [line for part in (*parts, _unknown, _attested) for line in part(sheet)]
    return "\n".join(lines).rstrip() + "\n"


def _head(sheet: Mapping[str, Any]) -> Iterator[str]:
    since = f"since {sheet['since']}" if sheet["since"] else "since the record began"
    yield "# How this data set was collected"
    yield ""
    yield f"About what was collected {since}, until {sheet['until']}."
    yield f"From the record of the crawler, read at {sheet['at']} by {sheet['made_by']}."
    yield "Why the data set was made, who may use it and who keeps it up, its publisher adds."
    yield ""


def _who(sheet: Mapping[str, Any]) -> Iterator[str]:
    yield from _heading("Who collected it")
    for identity in sheet["identities"]:
        told = [(name, identity[key]) for key, name in _IDENTITY.items() if identity[key]]
        span = f"{identity['first_run']} to {identity['last_run']}"
        yield from _table((count_of(identity["runs"], "run"), f"of runs {span}"), told)
    if not sheet["identities"]:
        yield from ("No run is recorded, so it is not known who asked.", "")


def _when(sheet: Mapping[str, Any]) -> Iterator[str]:
    runs = sheet["runs"]
    yield from _heading("When")
    by_hand = count_of(runs["by_hand"], "command", "commands")
    yield f"{count_of(runs['crawls'], 'crawl')}, and {by_hand} that asked for a URL by hand."
    if runs["first_began"]:
        ended = f", and the last one ended at {runs['last_ended']}" if runs["last_ended"] else ""
        yield f"The first of them began at {runs['first_began']}{ended}."
    yield ""
    ends = list(runs["ended"].items())
    if runs["without_end"]:
        ends.append(("killed, or going on", runs["without_end"]))
    yield from _table(("how they ended", "runs"), ends)


def _sources(sheet: Mapping[str, Any]) -> Iterator[str]:
    sources = sheet["sources"]
    yield from _heading("From which sources")
    declared = count_of(sources["declared"], "source")
    others = sources["not_declared"]
    yield f"The crawls declared {declared}; of others in the record, {others} were visited then."
    yield "What came of a source is what came of its last visit."
    yield ""
    rows = [(each["kind"], each["outcome"], each["number"]) for each in sources["outcomes"]]
    yield from _table(("kind", "outcome", "sources"), rows)
    troubles = [
        (each["url"], each["outcome"], each["status"], each["detail"], each["last_visit"])
        for each in sources["in_trouble"]
    ]
    yield from _table(("source in trouble", "outcome", "status", "why", "at"), troubles)


def _entries(sheet: Mapping[str, Any]) -> Iterator[str]:
    entries = sheet["entries"]
    yield from _heading("What is in it")
    number = count_of(entries["number"], "entry", "entries")
    kinds = ", ".join(f"{kind}: {count}" for kind, count in entries["kinds"].items())
    seen = f", first seen from {entries['first_seen']} to {entries['last_seen']}"
    yield f"{number}{f' ({in_markdown(kinds)})' if kinds else ''}{seen if kinds else ''}."
    if entries["is_closed"]:
        schema = entries["schema"]
        yield f"The schema of an entry, `{schema}`, is closed: it has these fields and no other."
    yield f"No text in it has more than {entries['longest_text']:,} characters."
    yield f"Its title: {entries['schema_title']}."
    yield "Row 6 of the last table says whether the entries fit it."
    yield ""
    rows = [(each["name"], each["what"], each["filled"]) for each in entries["fields"]]
    yield from _table(("field", "what it may be", "entries that have it"), rows)


def _requests(sheet: Mapping[str, Any]) -> Iterator[str]:
    requests = sheet["requests"]
    yield from _heading("What was asked for")
    number = count_of(requests["number"], "request")
    yield f"{number} to {count_of(requests['hosts'], 'host')}."
    yield ""
    purposes = [(_PURPOSES.get(name, name), count) for name, count in requests["purposes"].items()]
    yield from _table(("requests", "number"), purposes)
    answers = [(KINDS[kind], count) for kind, count in requests["responses"].items()]
    yield from _table(("responses", "number"), answers)


def _pauses(sheet: Mapping[str, Any]) -> Iterator[str]:
    pauses = sheet["pauses"]
    delay, retry, holds = pauses["crawl_delay"], pauses["retry_after"], pauses["holds"]
    operator = pauses["operator"]
    yield from _heading("Which pauses were asked for, and kept")
    rows = [
        ("Crawl-delay", count_of(delay["hosts"], "host"), delay["longest"]),
        ("Retry-After", _at_hosts(retry["answers"], "answer", retry["hosts"]), None),
        ("holds after an answer", count_of(holds["hosts"], "host"), holds["longest"]),
        (
            "the operator",
            _at_hosts(operator["pauses"], "act", operator["hosts"]),
            operator["longest"],
        ),
        ("anybody, before a request that was sent", None, pauses["longest_asked"]),
    ]
    asked = [(by, where, _seconds(longest)) for by, where, longest in rows]
    yield from _table(("asked for by", "where", "the longest"), asked)
    kept = [
        ("kept", pauses["kept"]),
        ("shorter than asked for", pauses["short"]),
        ("not known", pauses["not_known"]),
        ("no request of that host before", pauses["first"]),
    ]
    yield from _table(("pauses before requests", "number"), kept)
    if pauses["least_beyond_asked"] is not None:
        yield f"The least pause beyond what was asked for: {pauses['least_beyond_asked']:.3f} s."
    yield f"Holds that the operator lifted, each with a reason: {operator['releases']}."
    yield ""


def _kept_back(sheet: Mapping[str, Any]) -> Iterator[str]:
    yield from _heading("What was kept back")
    yield "Requests that a gate denied: they were not sent. A host is named if a source is there."
    yield ""
    rows = [
        row
        for gate in sheet["kept_back"]
        for row in (
            *((gate["gate"], at["host"], at["reason"], at["number"]) for at in gate["hosts"]),
            *_not_named(gate),
        )
    ]
    yield from _table(("gate", "host", "why", "requests"), rows)


def _not_named(gate: Mapping[str, Any]) -> Iterator[tuple[str, str, None, int]]:
    if others := gate["not_named"]["hosts"]:
        where = count_of(others, "host that no source declares", "hosts that no source declares")
        yield gate["gate"], where, None, gate["not_named"]["number"]


def _versions(sheet: Mapping[str, Any]) -> Iterator[str]:
    yield from _heading("With which versions")
    for group in sheet["versions"]:
        span = f"runs {group['first_run']} to {group['last_run']}"
        yield from _table((count_of(group["runs"], "run"), f"of {span}"), group["values"].items())
    if not sheet["versions"]:
        yield from ("No run is recorded, so they are not known.", "")


def _unknown(sheet: Mapping[str, Any]) -> Iterator[str]:
    """Say what the record lacks."""
    log, pauses, sources = sheet["log"], sheet["pauses"], sheet["sources"]
    lacking = ["What came into a source and left it again between two visits."]
    if before := log["deleted_before"]:
        days = " or ".join(map(str, log["days"]))
        lacking.append(
            f"What was asked for and kept back before {before}: all counts of that begin there, "
            f"because requests and denials are kept for {days} days (WALSH_LOG_DAYS)."
        )
    if renamed := sum(
        each["number"] for each in sources["outcomes"] if each["outcome"] == NOT_KNOWN
    ):
        lacking.append(
            f"What came of {count_of(renamed, 'source')} that requests were sent for: the state "
            "has no visit of it (rewritten after a move, forgotten, or cut off at its first visit)."
        )
    if lost := sources["runs_not_known"]:
        lacking.append(f"What {count_of(lost, 'run')} declared: the copy is no longer kept.")
    if unread := pauses["crawl_delay"]["requests_not_known"]:
        lacking.append(
            f"What robots.txt asked of {count_of(unread, 'request')}: its copy or run is missing."
        )
    if unknown := sheet["requests"]["responses"].get("open"):
        lacking.append(f"How {count_of(unknown, 'request')} ended.")
    yield from _heading("What is not known")
    yield from (f"- {each}" for each in lacking)
    yield ""


def _attested(sheet: Mapping[str, Any]) -> Iterator[str]:
    found = sheet["attestation"]
    yield from _heading("Whether the rules were kept")
    yield f"The whole record was judged by {in_markdown(found['contract'])}, as that of this bot:"
    yield f"{in_markdown(found['bot'])}."
    yield f"Of {found['conclusion']}."
    if found["changed"]:
        yield f"Changed after it was judged: {in_markdown(', '.join(found['changed']))}."
    yield ""
    names = ("row", "rule", "level", "requirement", "verdict")
    rows = [[row[name] for name in names] for row in found["checklist"]]
    yield from _table(names, rows)
    yield f"The SHA-256 of the digests of what was judged: `{found['record']}`"


def _heading(text: str) -> tuple[str, str]:
    return f"## {text}", ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield a table, and a line about the rows that are left out; nothing if there are none."""
    written = [_row([_cell(value) for value in row]) for row in rows]
    if not written:
        return
    yield _row(heads)
    yield _row(["---"] * len(heads))
    yield from written[:MOST_ROWS]
    yield ""
    if len(written) > MOST_ROWS:
        yield from (and_more(len(written) - MOST_ROWS), "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    return "" if value is None else in_markdown(cut(str(value), _LONGEST_CELL))


def _at_hosts(number: int, noun: str, hosts: int) -> str:
    return f"{count_of(number, noun)} at {count_of(hosts, 'host')}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else format_seconds(seconds)
