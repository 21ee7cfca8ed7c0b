"""A trial: the command crawls the scenarios' hosts in up to five runs, and each is checked."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from walsh_scrapy import __version__
from walsh_scrapy.testing.checks import BUSY
from walsh_scrapy.testing.conformance import documents, identity, optouts, pace, robots
from walsh_scrapy.testing.conformance.crawler import LONGEST, CallOfRun, Given, Output, Places, call
from walsh_scrapy.testing.conformance.optouts import BLOCKLIST_URL
from walsh_scrapy.testing.conformance.pace import HELD, LAST, RESTARTED
from walsh_scrapy.testing.conformance.scenario import (
    Conclusion,
    Level,
    Run,
    Seen,
    TrialLog,
    Verdict,
)
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.hit import DEFAULT_PORTS, without_requests
from walsh_scrapy.testing.site import Certificate, Site
from walsh_scrapy.testing.web import LoopbackWeb

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from walsh_scrapy.testing.conformance.scenario import Scenario
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.web import Web

#: In the order of their rules.
_PACKAGE: Final = (identity, robots, optouts, pace, documents)
SCENARIOS: Final[tuple[Scenario, ...]] = tuple(each for part in _PACKAGE for each in part.SCENARIOS)
RULES: Final = tuple(sorted({each.rule for each in SCENARIOS}))
#: The seconds for a crawler to note a response before it is killed.
_WRITING_SECONDS: Final = 0.5
_OPENED: Final = 200
#: Never requested: it makes the web have a CA, whatever the scenarios.
_WITH_TLS: Final = Site("ca.example", tls=Certificate.GOOD)


#: The version of the JSON; `conformance.schema.json` describes it.
FORMAT: Final = "walsh-research-conformance/v1"


#: The scenarios that apply to every crawler: it names itself, requests robots.txt first, obeys it
#: and the group of its name, keeps its delays, and requests nothing else.
UNAVOIDABLE: Final = frozenset({
    "one-user-agent", "says-who", "robots-first", "disallow", "named-group-denies",
    "named-group-exempts", "one-a-second", "crawl-delay", "nothing-undeclared",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """A scenario and its finding."""

    scenario: Scenario
    finding: Conclusion


@dataclass(frozen=True, slots=True)
class Scorecard:
    """The findings of a trial."""

    command: tuple[str, ...]
    web: str  #: "direct" or "proxy"
    user_agents: tuple[str, ...]  #: that the crawler sent, in the order of their first use
    calls: tuple[CallOfRun, ...]
    results: tuple[Result, ...]
    is_whole: bool  #: all scenarios were tried
    output: str  #: the end of the command's output

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
        """True if this is true of the tried scenarios, and one of them passed."""
        return bool(self.having(Verdict.PASS)) and not self.failed and not self.not_shown

    def by_rule(self) -> dict[str, Counter[Verdict]]:
        """Return the number of scenarios of each verdict, by rule."""
        counts: dict[str, Counter[Verdict]] = {}
        for each in self.results:
            counts.setdefault(each.scenario.rule, Counter())[each.finding.verdict] += 1
        return counts

    def as_dict(self) -> dict[str, object]:
        """Return the scorecard as `conformance.schema.json` describes it."""
        return {
            "format": FORMAT,
            "version": __version__,
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


class TrialError(Exception):
    """The command cannot be tried: it does not start, or it makes no request at all."""


def run(
    command: Sequence[str],
    rules: Collection[str] | None = None,
    *,
    user_agent: str | None = None,
    proxy: bool | None = None,
    patience: float = 1.0,
    told: Callable[[str], None] = lambda _: None,
) -> Scorecard:
    """Let a command crawl the scenarios of these rules, or of these names, and check each.

    `user_agent` is the one that it must send, exactly (default: any, but always the same). With
    `proxy` the hosts are names behind a proxy, without it addresses of this machine (default:
    addresses where there are any, on Linux). `patience` stretches all limits of time. `told` gets a
    sentence as each run begins. Raises ValueError for an unknown rule, and TrialError.
    """
    scenarios = chosen(rules)
    behind_proxy = sys.platform != "linux" if proxy is None else proxy
    web: Web = LoopbackWeb() if behind_proxy else DirectWeb()
    with web, tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        trial = _Trial(command, scenarios, web, Path(folder), patience)
        for each in Run:
            if any(each in scenario.runs for scenario in scenarios):
                trial.call(each, told)
        return trial.scorecard(user_agent)


def chosen(wanted: Collection[str] | None) -> tuple[Scenario, ...]:
    """Return the scenarios of these rules ("R4"), or those of these names; all without any.

    Raises ValueError for a word that is neither.
    """
    if wanted is None:
        return SCENARIOS
    names = {each.name for each in SCENARIOS}
    if unknown := sorted(set(wanted) - names - set(RULES)):
        raise ValueError(f"no such rule or scenario: {', '.join(unknown)}")
    return tuple(each for each in SCENARIOS if {each.rule, each.name} & set(wanted))


@dataclass
class _Trial:
    command: Sequence[str]
    scenarios: Sequence[Scenario]
    web: Web
    folder: Path
    patience: float
    calls: list[CallOfRun] = field(default_factory=list)
    begun: list[tuple[Run, float]] = field(default_factory=list)  #: on the clock of the log

    def __post_init__(self) -> None:
        sites = {site.name: site for each in self.scenarios for site in each.sites}
        ports = self.web.ports if isinstance(self.web, DirectWeb) else None
        self.places = Places((site.host for site in sites.values()), ports)
        self.web.add(_WITH_TLS, *map(self.places.site, sites.values()))
        self.began = time.monotonic()
        self.output = Output()
        (self.folder / "kept").mkdir()
        self.key = Ed25519PrivateKey.generate()
        self.key_file = self.folder / "key.pem"
        self.key_file.touch(0o600)
        self.key_file.write_bytes(
            self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )

    def call(self, run: Run, told: Callable[[str], None]) -> None:
        """Call the command once, with the seeds of this run."""
        given = self._given(run)
        before = len(self.web.log)
        self.begun.append((run, time.monotonic()))
        told(f"{run.value} run, at most {LONGEST[run] * self.patience:.0f} s")
        try:
            ended = call(
                run,
                given.command(self.command),
                given.environment(run),
                self.output,
                self._is_time_to_kill if run is Run.KILLED else lambda: False,
                self.patience,
            )
        except OSError as error:
            raise TrialError(f"{self.command[0]}: {error.strerror}") from error
        requests = len(self.web.log) - before
        self.calls.append(replace(ended, requests=requests))
        if not self.web.log:
            output = self.output.tail.strip()
            wrote = f"It wrote:\n{output}" if output else "It wrote nothing."
            raise TrialError(f"the command made no request. {wrote}")

    def scorecard(self, user_agent: str | None) -> Scorecard:
        """Check the log of the servers."""
        everything = self._everything()
        silent = self._silent()
        has_proxy = isinstance(self.web, LoopbackWeb)
        named = tuple(map(self.places.connection, self.web.connections))
        key, results = self.key.public_key(), []
        declared = declared_by(self.scenarios)
        for each in self.scenarios:
            evidence = TrialLog(
                everything, each.hosts, named, silent, user_agent, key, has_proxy, declared
            )
            results.append(Result(each, self._finding(each, evidence)))
        agents = (seen.hit.header("User-Agent") or "" for seen in everything)
        return Scorecard(
            tuple(self.command),
            "proxy" if has_proxy else "direct",
            tuple(dict.fromkeys(agents)),
            tuple(self.calls),
            tuple(results),
            self.scenarios == SCENARIOS,
            self.output.tail,
        )

    def _finding(self, scenario: Scenario, evidence: TrialLog) -> Conclusion:
        finding = scenario.check(evidence)
        cut = [each for each in self.calls if each.cut and Run(each.run) in scenario.runs]
        match finding.verdict:
            case Verdict.FAIL if scenario.level == "MAY":
                reason = f"a crawler may leave this out: {finding.reason}"
                return Conclusion(Verdict.NOT_APPLICABLE, reason, finding.lines)
            case Verdict.NOT_APPLICABLE if cut:
                reason = (
                    f"the {cut[0].run} run still went on after {cut[0].seconds:.0f} s and was "
                    f"ended; --patience {2 * self.patience:g} gives it twice the time"
                )
                return Conclusion(Verdict.NOT_RUN, reason)
        return finding

    def _everything(self) -> tuple[Seen, ...]:
        return tuple(
            self._seen(hit)
            for hit in sorted(self.web.log, key=lambda hit: hit.started)
            if hit.method != "CONNECT"
        )

    def _silent(self) -> tuple[Seen, ...]:
        """Return connections without a request, tunnels that did not open among them."""
        log = self.web.log
        tunnels = [hit for hit in log if hit.method == "CONNECT" and hit.status != _OPENED]
        return tuple(map(self._seen, [*tunnels, *without_requests(self.web.connections, log)]))

    def _seen(self, hit: Hit) -> Seen:
        return Seen(self.places.hit(hit), self._run_at(hit.started), hit.started - self.began, hit)

    def _run_at(self, moment: float) -> Run:
        """Return the run that was under way, on the clock of the log."""
        return [run for run, began in self.begun if began <= moment][-1]

    def _given(self, run: Run) -> Given:
        mine = sorted(
            (each for each in self.scenarios if run in each.runs),
            key=lambda each: LAST.index(each.name) if each.name in LAST else -1,
        )
        seeds = self._file("seeds", [url for each in mine for url in each.seeds])
        pages = self._file("pages", [url for each in mine for url in each.pages])
        proxy = self.web.url if isinstance(self.web, LoopbackWeb) else ""
        authority = Path(self.web.environment["SSL_CERT_FILE"])
        blocklist = self.places.text(BLOCKLIST_URL)
        kept = self.folder / "kept"
        return Given(seeds, pages, kept, authority, self.key_file, blocklist, proxy)

    def _file(self, name: str, urls: Iterable[str]) -> Path:
        """Write URLs as the crawler finds them, each once."""
        path = self.folder / f"{name}.txt"
        text = "".join(f"{url}\n" for url in dict.fromkeys(urls))
        path.write_text(self.places.text(text), encoding="utf-8")
        return path

    def _is_time_to_kill(self) -> bool:
        """Return True once each host of a repeated request has answered for a page.

        That was a while ago, so a crawler could write down its memory.
        """
        began, done = self.begun[-1][1], time.monotonic() - _WRITING_SECONDS * self.patience
        log = [hit for hit in self.web.log if hit.started >= began and hit.ended < done]
        seen = [self.places.hit(hit) for hit in log]
        wanted = {RESTARTED.host: _is_page, HELD.host: _is_refusal}
        there = {host for each in self.scenarios for host in each.hosts} & set(wanted)
        return all(any(h.host == host and wanted[host](h) for h in seen) for host in there)


def declared_by(scenarios: Iterable[Scenario]) -> frozenset[str]:
    """Return the URLs that a crawler may request without a redirect, robots.txt apart (R6, R9)."""
    declared = {url for each in scenarios for url in (*each.seeds, *each.pages)}
    indexes = {
        f"{scheme}://{h}/llms.txt"
        for each in scenarios
        for h in each.hosts
        for scheme in DEFAULT_PORTS
    }
    return frozenset(declared | indexes | {BLOCKLIST_URL})


def _is_page(hit: Hit) -> bool:
    return hit.path != "/robots.txt"


def _is_refusal(hit: Hit) -> bool:
    return hit.status in BUSY
