"""``walsh attest``: the audit of the state database by the checklist."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.attest import attest
from walsh_scrapy.feeds.attest.record import Bot, Verdict
from walsh_scrapy.feeds.sources.source import unique
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.show import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.feeds.attest import Attestation
    from walsh_scrapy.tools.call import Call

_COLUMNS: Final = ("row", "verdict", "count", "requirement")


def run(call: Call) -> int:
    """Audit the records; return 1 if a MUST is broken. Raises CommandError without any."""
    with call.state() as state, state.log() as log:
        bot = Bot(*call.identity)
        attestation = attest(log, state.now(), bot, call.arguments.since or 0.0)
    if not attestation.requests and not attestation.entries:
        raise CommandError(
            f"there is nothing to attest: the state database has no request of {bot.ua_token}, and "
            "no entry"
        )
    as_json = call.arguments.json
    rows = attestation.rows if as_json else list(_build_table(attestation))
    show(rows, _COLUMNS, as_json=as_json, empty="")
    if not as_json:
        print(_summarize(attestation, bot), file=sys.stdout if sys.stdout.isatty() else sys.stderr)
    return 0 if attestation.holds else 1


def _build_table(attestation: Attestation) -> Iterator[dict[str, Any]]:
    """Yield the lines of the table: each row, with its findings and with what is not shown."""
    for row in attestation.rows:
        verdict = row["verdict"]
        yield {
            "row": row["row"],
            "verdict": verdict,
            "count": row["shown"],
            "requirement": row["requirement"],
            "problem": "broken" if verdict == Verdict.BROKEN else None,
        }
        for finding in row["findings"]:
            first = finding["first"]
            place = f"{first['table']} {first['id']}" + (f" {first['at']}" if first["at"] else "")
            yield _build_line(
                finding["kind"],
                finding["count"],
                f"{finding['problem']} ({finding['level']}); first: {place} {first['what']}",
                "broken" if finding["level"] == "MUST" else "warning",
            )
        for reason, count in row["not_shown"].items():
            yield _build_line("not shown", count, reason, "warning")
        if row["not_applicable"]:
            yield _build_line("not applicable", None, row["not_applicable"], None)


def _build_line(verdict: str, count: int | None, text: str, problem: str | None) -> dict[str, Any]:
    return {
        "row": None,
        "verdict": verdict,
        "count": count,
        "requirement": text,
        "problem": problem,
    }


def _summarize(attestation: Attestation, bot: Bot) -> str:
    verdicts = [row["verdict"] for row in attestation.rows]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in unique(verdicts))
    requests = count_of(attestation.requests, "request")
    entries = count_of(attestation.entries, "entry", "entries")
    end = "no MUST is broken" if attestation.holds else "a MUST is broken"
    subject = f"{bot.ua_token}, {requests} and {entries} until {rfc3339(attestation.until)}"
    others = "".join(
        f"; not judged: {count_of(count, 'request')} of {token}, another bot on this state"
        for token, count in attestation.others.items()
    )
    return f"{subject}: {counts}; {end}{others}"
