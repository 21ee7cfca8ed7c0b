"""An attestation in words, for a terminal, a mail or a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.output import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: The figures of the record, in words.
_FIGURES: Final = {
    "hosts": "hosts",
    "pauses": "pauses",
    "least_beyond_asked": "seconds to spare",
    "denied_though_allowed": "denied though the copy allows it",
    "lists": "lists",
    "before_the_first_list": "before the first list",
    "denied_though_not_listed": "denied though not listed",
    "entries": "entries",
    "asked_again": "asked for again",
    "unchanged": "unchanged (304)",
}
_COLUMNS: Final = ("row", "verdict", "requirement")
_INDENT: Final = " " * 6


def attestation_text(attestation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an attestation."""
    yield f"{attestation['contract']}, judged {attestation['at']}"
    yield f"by {attestation['attested_by']}"
    yield from _groups("versions", attestation["versions"])
    yield from _groups("settings", attestation["settings"])
    if trial := attestation["conformance"]:
        yield printable(f"conformance run of: {' '.join(trial['command'])}")
        yield from (_INDENT + printable(name) for name in trial["user_agents"])
    yield ""
    rows = attestation["checklist"]
    heads = columns([[row[name] for name in _COLUMNS] for row in rows])
    for row, head in zip(rows, heads, strict=True):
        yield head
        for line in _evidence(row):
            yield _INDENT + printable(line)
    yield ""
    yield conclusion(attestation)


def conclusion(attestation: Mapping[str, Any]) -> str:
    """Return one line: how many rows hold, and whether any MUST is broken."""
    verdicts = [row["verdict"] for row in attestation["checklist"]]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {word}"
        for verdict, word in (
            ("holds", "hold"),
            ("does not hold", "do not hold"),
            ("not shown", "are not shown"),
        )
    )
    end = "no MUST is broken" if attestation["holds"] else "a MUST is broken"
    return f"{len(verdicts)} rows: {counts}; {end}"


def _groups(name: str, groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the values of the last runs, and how many other sets of values there were."""
    if not groups:
        yield f"{name}: no run is recorded"
        return
    last = groups[-1]
    others = count_of(len(groups) - 1, "other set", "other sets")
    runs = f"runs {last['first_run']} to {last['last_run']}"
    yield f"{name} of {runs} ({others} of values in earlier runs):"
    for key, value in last["values"].items():
        yield _INDENT + printable(f"{key} {value}")


def _evidence(row: Mapping[str, Any]) -> Iterator[str]:
    figures = [
        f"{_FIGURES[name]}: {value}"
        for name, value in row["figures"].items()
        if isinstance(value, float) or value
    ]
    yield "; ".join([row["level"], f"judged: {row['judged']}", *figures])
    for reason, count in row["not_shown"].items():
        yield f"{count} not shown: {reason}"
    for finding in row["findings"]:
        yield f"{finding['level']} broken {count_of(finding['count'], 'time')}: {finding['what']}"
        worst = finding["worst"]
        when = f" at {worst['at']}" if worst["at"] else ""
        yield f"  {worst['table']} {worst['id']}{when}: {worst['what']}"
    if trial := row["conformance"]:
        failed = [*trial["failed"], *trial["failed_should"]]
        said = f"; failed: {', '.join(failed)}" if failed else ""
        yield f"conformance: {trial['passed']} passed{said}"
