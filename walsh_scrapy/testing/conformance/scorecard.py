"""The scorecard of a crawler: a finding for each scenario, as objects and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy import __version__
from walsh_scrapy.testing.conformance.scenario import Level, Verdict

if TYPE_CHECKING:
    from walsh_scrapy.testing.conformance.crawler import CallOfRun
    from walsh_scrapy.testing.conformance.scenario import Judgement, Scenario

#: The version of the JSON; `conformance.schema.json` describes it.
FORMAT: Final = "walsh-research-conformance/v1"


#: What every crawler comes to, whatever it leaves out: that it says who asks, asks for robots.txt
#: first, obeys it and its own group, keeps its pauses, and asks for nothing else.
UNAVOIDABLE: Final = frozenset({
    "one-user-agent", "says-who", "robots-first", "disallow", "named-group-denies",
    "named-group-exempts", "one-a-second", "crawl-delay", "nothing-undeclared",
})  # fmt: skip


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
    is_whole: bool  #: all scenarios were tried
    output: str  #: the end of what the command wrote

    def having(self, verdict: Verdict) -> list[Result]:
        """Return the results with this verdict."""
        return [each for each in self.results if each.finding.verdict is verdict]

    @property
    def failed(self) -> list[Result]:
        """The MUSTs that failed."""
        return [each for each in self.having(Verdict.FAIL) if each.scenario.level is Level.MUST]

    @property
    def not_shown(self) -> list[Result]:
        """The MUSTs that could not run, and those that no crawler can avoid and this one did."""
        return [
            each
            for each in self.results
            if (each.finding.verdict is Verdict.NOT_RUN and each.scenario.level is Level.MUST)
            or (
                each.finding.verdict is Verdict.NOT_APPLICABLE and each.scenario.name in UNAVOIDABLE
            )
        ]

    @property
    def is_conformant(self) -> bool:
        """True if no MUST failed, each could run, and those that no crawler can avoid passed.

        SHOULDs count for nothing here. A trial of some scenarios alone shows no conformance.
        """
        return self.is_whole and self.keeps_what_was_tried

    @property
    def keeps_what_was_tried(self) -> bool:
        """True if the same can be said of the scenarios that were tried, and one of them passed."""
        return bool(self.having(Verdict.PASS)) and not self.failed and not self.not_shown

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
            "judge": __version__,
            "command": list(self.command),
            "web": self.web,
            "user_agents": list(self.user_agents),
            "runs": [asdict(each) | {"seconds": round(each.seconds, 3)} for each in self.calls],
            "conformant": self.is_conformant,
            "failed": [each.scenario.name for each in self.failed],
            "not_shown": [each.scenario.name for each in self.not_shown],
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
