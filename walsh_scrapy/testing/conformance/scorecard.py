"""The scorecard of a crawler: a finding for each scenario, as objects and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import Verdict

if TYPE_CHECKING:
    from walsh_scrapy.testing.conformance.crawler import CallOfRun
    from walsh_scrapy.testing.conformance.scenario import Judgement, Scenario

#: The version of the JSON; `conformance.schema.json` describes it.
FORMAT: Final = "walsh-research-conformance/v1"


@dataclass(frozen=True, slots=True)
class Result:
    """A scenario and what was found."""

    scenario: Scenario
    finding: Judgement


@dataclass(frozen=True, slots=True)
class Scorecard:
    """What a trial found."""

    command: tuple[str, ...]
    web: str  #: "direct" or "proxy"
    user_agents: tuple[str, ...]  #: that the crawler sent, in the order of their first use
    calls: tuple[CallOfRun, ...]
    results: tuple[Result, ...]
    output: str = ""  #: the end of what the command wrote

    def having(self, verdict: Verdict) -> list[Result]:
        """Return the results with this verdict."""
        return [each for each in self.results if each.finding.verdict is verdict]

    @property
    def is_conformant(self) -> bool:
        """True if nothing failed, and something passed."""
        return not self.having(Verdict.FAIL) and bool(self.having(Verdict.PASS))

    def by_rule(self) -> dict[str, Counter[Verdict]]:
        """Return how often each verdict was found, by rule."""
        counts: dict[str, Counter[Verdict]] = {}
        for each in self.results:
            counts.setdefault(each.scenario.rule, Counter())[each.finding.verdict] += 1
        return counts

    def as_dict(self) -> dict[str, object]:
        """Return the scorecard as `conformance.schema.json` describes it."""
        return {
            "format": FORMAT,
            "command": list(self.command),
            "web": self.web,
            "user_agents": list(self.user_agents),
            "runs": [asdict(each) | {"seconds": round(each.seconds, 3)} for each in self.calls],
            "conformant": self.is_conformant,
            "results": [_result(each) for each in self.results],
        }


def _result(result: Result) -> dict[str, object]:
    scenario, finding = result.scenario, result.finding
    return {
        "rule": scenario.rule,
        "scenario": scenario.name,
        "level": scenario.level.value,
        "asks": scenario.asks,
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "log": list(finding.lines),
    }
