"""A conformance run as evidence: the JSON of its scorecard, by the rows of the checklist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.audit.checklist import CHECKLIST, Trial
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = "walsh-research-conformance/v1"
#: Scenarios about a row of their own. All others count for the first row of their rule.
_ROW_OF: Final = {
    "named-group-denies": "2a",
    "named-group-exempts": "2a",
    "opted-out-subdomain": "3a",
    "list-retained": "3b",
}
_FIRST: Final = {row.rule: row.number for row in reversed(CHECKLIST)}


def read_scorecard(name: str) -> dict[str, Any]:
    """Read a scorecard. Raises CommandError for a file that is none."""
    try:
        scorecard = json.loads(Path(name).read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{name} is no JSON: {error}") from error
    wanted = {"command", "user_agents", "results"}
    is_one = isinstance(scorecard, dict) and scorecard.get("format") == FORMAT
    if not is_one or wanted - scorecard.keys():
        raise CommandError(f"{name} is no scorecard of `scrapy conformance --json` ({FORMAT})")
    return dict(scorecard)


def trials_of(scorecard: Mapping[str, Any]) -> dict[str, Trial]:
    """Return what a scorecard says of each row. Raises CommandError if it lacks its results."""
    by_row: dict[str, list[Mapping[str, str]]] = {}
    try:
        for result in scorecard["results"]:
            row = _ROW_OF.get(result["scenario"], _FIRST[result["rule"]])
            given = {name: result[name] for name in ("scenario", "level", "verdict")}
            by_row.setdefault(row, []).append(given)
    except (KeyError, TypeError) as error:
        raise CommandError(f"the scorecard lacks {error}") from error
    return {row: _trial(results) for row, results in by_row.items()}


def _trial(results: list[Mapping[str, str]]) -> Trial:
    def failed(level: str) -> tuple[str, ...]:
        found = (each for each in results if each["verdict"] == "fail" and each["level"] == level)
        return tuple(each["scenario"] for each in found)

    passed = sum(each["verdict"] == "pass" for each in results)
    return Trial(passed, failed("MUST"), failed("SHOULD"))
