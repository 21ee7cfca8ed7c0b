"""A trial: the command crawls the hosts of all scenarios in up to five runs, and is then judged."""

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
from walsh_scrapy.testing.conformance import (
    crawler,
    documents,
    optouts,
    pace,
    robotsrules,
    useragent,
)
from walsh_scrapy.testing.conformance.optouts import BLOCKLIST_URL
from walsh_scrapy.testing.conformance.pace import HELD, LAST, RESTARTED
from walsh_scrapy.testing.conformance.scenario import (
    Conclusion,
    Level,
    Run,
    Seen,
    TrialLog,
    Verdict,
    unique_of,
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

#: The modules with scenarios, in the order of their rules.
_MODULES: Final = (useragent, robotsrules, optouts, pace, documents)
SCENARIOS: Final[tuple[Scenario, ...]] = tuple(
    scenario for module in _MODULES for scenario in module.SCENARIOS
)
RULES: Final = tuple(sorted({scenario.rule for scenario in SCENARIOS}))
#: How long a crawler may take to store what it learned from a response, before it is killed.
_WRITING_SECONDS: Final = 0.5
_OPENED: Final = 200
#: Never requested. Because of it the web has a CA, whatever scenarios are chosen.
_WITH_TLS: Final = Site("ca.example", tls=Certificate.GOOD)


#: The version of the JSON; `conformance.schema.json` describes it.
FORMAT: Final = "walsh-research-conformance/v1"


#: The scenarios that apply to every crawler: each one names itself, requests robots.txt first,
#: obeys it and the group with its name, respects delays, and requests nothing else.
UNAVOIDABLE: Final = frozenset({
    "one-user-agent", "says-who", "robots-first", "disallow", "named-group-denies",
    "named-group-exempts", "one-a-second", "crawl-delay", "nothing-undeclared",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """A scenario, and what its check found."""

    scenario: Scenario
    finding: Conclusion


@dataclass(frozen=True, slots=True)
class Scorecard:
    """The results of a trial."""

    command: tuple[str, ...]
    web: str  #: "direct" or "proxy"
    user_agents: tuple[str, ...]  #: what the crawler sent, in the order of first use
    calls: tuple[crawler.CallOfRun, ...]
    results: tuple[Result, ...]
    is_whole: bool  #: True if all scenarios were tried
    output: str  #: the end of the command's output

    def having(self, verdict: Verdict) -> list[Result]:
        """Return the results with this verdict."""
        return [result for result in self.results if result.finding.verdict is verdict]

    @property
    def failed(self) -> list[Result]:
        """The results of MUST scenarios that failed."""
        return [
            result for result in self.having(Verdict.FAIL) if result.scenario.level is Level.MUST
        ]

    @property
    def not_shown(self) -> list[Result]:
        """The results that leave conformance open.

        These are MUST scenarios that could not run, and scenarios that apply to every crawler but
        were not applicable.
        """
        return [
            result
            for result in self.results
            if (result.finding.verdict is Verdict.NOT_RUN and result.scenario.level is Level.MUST)
            or (
                result.finding.verdict is Verdict.NOT_APPLICABLE
                and result.scenario.name in UNAVOIDABLE
            )
        ]

    @property
    def is_conformant(self) -> bool:
        """Whether all scenarios were tried, no MUST failed, and none of them was left open.

        SHOULD and MAY scenarios do not matter here.
        """
        return self.is_whole and self.keeps_what_was_tried

    @property
    def keeps_what_was_tried(self) -> bool:
        """Whether no MUST among the tried scenarios failed or was left open, and one passed."""
        return bool(self.having(Verdict.PASS)) and not self.failed and not self.not_shown

    def by_rule(self) -> dict[str, Counter[Verdict]]:
        """Return how many scenarios of each rule have each verdict."""
        counts: dict[str, Counter[Verdict]] = {}
        for result in self.results:
            counts.setdefault(result.scenario.rule, Counter())[result.finding.verdict] += 1
        return counts

    def as_dict(self) -> dict[str, object]:
        """Return the scorecard as `conformance.schema.json` describes it."""
        return {
            "format": FORMAT,
            "version": __version__,
            "command": list(self.command),
            "web": self.web,
            "user_agents": list(self.user_agents),
            "runs": [asdict(call) | {"seconds": round(call.seconds, 3)} for call in self.calls],
            "conformant": self.is_conformant,
            "failed": [result.scenario.name for result in self.failed],
            "not_shown": [result.scenario.name for result in self.not_shown],
            "results": [_result(result) for result in self.results],
        }


def _result(result: Result) -> dict[str, object]:
    scenario = result.scenario
    finding = result.finding
    return {
        "rule": scenario.rule,
        "scenario": scenario.name,
        "level": scenario.level.value,
        "asks": scenario.requirement,
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "log": list(finding.lines),
    }


class TrialError(Exception):
    """The command cannot be tested: it does not start, or it makes no request at all."""


def run(
    command: Sequence[str],
    rules: Collection[str] | None = None,
    *,
    user_agent: str | None = None,
    proxy: bool | None = None,
    patience: float = 1.0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Scorecard:
    """Test a crawler: let the command crawl the hosts of the scenarios, and check their log.

    `command` may have placeholders such as `{seeds}`: see `CrawlerInput`. `rules` are names of
    rules ("R4") or of scenarios (default: all). `user_agent` is the exact User-Agent that it must
    send (default: any, but always the same). With `proxy` the hosts are names behind a proxy,
    otherwise addresses of this machine (default: addresses on Linux, where there are enough of
    them). `patience` multiplies all time limits. `on_progress` is called with a sentence when a run
    begins.

    Raises ValueError for an unknown rule, and TrialError if the command cannot be tested.
    """
    scenarios = choose_scenarios(rules)
    behind_proxy = sys.platform != "linux" if proxy is None else proxy
    web: Web = LoopbackWeb() if behind_proxy else DirectWeb()
    with web, tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        trial = _Trial(command, scenarios, web, Path(folder), patience)
        for stage in Run:
            if any(stage in scenario.runs for scenario in scenarios):
                trial.call(stage, on_progress)
        return trial.scorecard(user_agent)


def choose_scenarios(words: Collection[str] | None) -> tuple[Scenario, ...]:
    """Return the scenarios with these rules ("R4") or names; all if `words` is None.

    Raises ValueError for a word that is neither a rule nor a name.
    """
    if words is None:
        return SCENARIOS
    names = {scenario.name for scenario in SCENARIOS}
    if unknown := sorted(set(words) - names - set(RULES)):
        raise ValueError(f"there is no rule or scenario named {', '.join(unknown)}")
    return tuple(scenario for scenario in SCENARIOS if {scenario.rule, scenario.name} & set(words))


@dataclass
class _Trial:
    command: Sequence[str]
    scenarios: Sequence[Scenario]
    web: Web
    folder: Path
    patience: float
    calls: list[crawler.CallOfRun] = field(default_factory=list)
    begun: list[tuple[Run, float]] = field(default_factory=list)  #: the start of each run

    def __post_init__(self) -> None:
        sites = {site.name: site for scenario in self.scenarios for site in scenario.sites}
        ports = self.web.ports if isinstance(self.web, DirectWeb) else None
        self.places = crawler.Places((site.host for site in sites.values()), ports)
        self.web.add(_WITH_TLS, *(self.places.site(site) for site in sites.values()))
        self.began = time.monotonic()
        self.output = crawler.Output()
        (self.folder / "kept").mkdir()
        self.key = Ed25519PrivateKey.generate()
        self.key_file = self.folder / "key.pem"
        self.key_file.touch(0o600)
        self.key_file.write_bytes(
            self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )

    def call(self, run: Run, on_progress: Callable[[str], None]) -> None:
        """Call the command once, with the URLs of this run."""
        crawler_input = self._input_of(run)
        before = len(self.web.log)
        self.begun.append((run, time.monotonic()))
        on_progress(
            f"{run.value} run, at most {crawler.TIMEOUT_SECONDS[run] * self.patience:.0f} s"
        )
        try:
            call_of_run = crawler.call(
                run,
                crawler_input.command(self.command),
                crawler_input.environment(run),
                self.output,
                self._is_time_to_kill if run is Run.KILLED else lambda: False,
                self.patience,
            )
        except OSError as error:
            raise TrialError(f"{self.command[0]}: {error.strerror}") from error
        requests = len(self.web.log) - before
        self.calls.append(replace(call_of_run, requests=requests))
        if not self.web.log:
            output = self.output.tail.strip()
            wrote = f"It wrote:\n{output}" if output else "It wrote nothing."
            raise TrialError(f"the command made no request. {wrote}")

    def scorecard(self, user_agent: str | None) -> Scorecard:
        """Check the log of the servers, and return the results."""
        everything = self._everything()
        silent = self._silent()
        has_proxy = isinstance(self.web, LoopbackWeb)
        named = tuple(map(self.places.connection, self.web.connections))
        key = self.key.public_key()
        results: list[Result] = []
        declared = declared_by(self.scenarios)
        for scenario in self.scenarios:
            evidence = TrialLog(
                everything, scenario.hosts, named, silent, user_agent, key, has_proxy, declared
            )
            results.append(Result(scenario, self._finding(scenario, evidence)))
        agents = (request.hit.header("User-Agent") or "" for request in everything)
        return Scorecard(
            tuple(self.command),
            "proxy" if has_proxy else "direct",
            tuple(unique_of(agents)),
            tuple(self.calls),
            tuple(results),
            self.scenarios == SCENARIOS,
            self.output.tail,
        )

    def _finding(self, scenario: Scenario, evidence: TrialLog) -> Conclusion:
        finding = scenario.check(evidence)
        cut = [call for call in self.calls if call.cut and Run(call.run) in scenario.runs]
        match finding.verdict:
            case Verdict.FAIL if scenario.level == "MAY":
                reason = f"this is optional (MAY): {finding.reason}"
                return Conclusion(Verdict.NOT_APPLICABLE, reason, finding.lines)
            case Verdict.NOT_APPLICABLE if cut and not finding.is_final:
                reason = (
                    f"the {cut[0].run} run was ended at its time limit of {cut[0].seconds:.0f} s; "
                    f"--patience {2 * self.patience:g} gives it twice as much time"
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
        """Return the connections without a request, including tunnels that were not opened."""
        log = self.web.log
        tunnels = [hit for hit in log if hit.method == "CONNECT" and hit.status != _OPENED]
        return tuple(map(self._seen, [*tunnels, *without_requests(self.web.connections, log)]))

    def _seen(self, hit: Hit) -> Seen:
        return Seen(self.places.hit(hit), self._run_at(hit.started), hit.started - self.began, hit)

    def _run_at(self, moment: float) -> Run:
        """Return the run that was going on at a moment of the log."""
        return [run for run, began in self.begun if began <= moment][-1]

    def _input_of(self, run: Run) -> crawler.CrawlerInput:
        scenarios = sorted(
            (scenario for scenario in self.scenarios if run in scenario.runs),
            key=lambda scenario: LAST.index(scenario.name) if scenario.name in LAST else -1,
        )
        seeds = self._file("seeds", [url for scenario in scenarios for url in scenario.seeds])
        pages = self._file("pages", [url for scenario in scenarios for url in scenario.pages])
        proxy = self.web.url if isinstance(self.web, LoopbackWeb) else ""
        authority = Path(self.web.environment["SSL_CERT_FILE"])
        blocklist = self.places.text(BLOCKLIST_URL)
        kept_folder = self.folder / "kept"
        return crawler.CrawlerInput(
            seeds, pages, kept_folder, authority, self.key_file, blocklist, proxy
        )

    def _file(self, name: str, urls: Iterable[str]) -> Path:
        """Write a file with each URL once, and return its path."""
        path = self.folder / f"{name}.txt"
        text = "".join(f"{url}\n" for url in unique_of(urls))
        path.write_text(self.places.text(text), encoding="utf-8")
        return path

    def _is_time_to_kill(self) -> bool:
        """Return True once the crawler has learned what it must remember after it was killed.

        Each host of those scenarios has answered, long enough ago for the crawler to store it. The
        Crawl-delay is known from robots.txt; a page would come after the time limit of the run.
        """
        began = self.begun[-1][1]
        done = time.monotonic() - _WRITING_SECONDS * self.patience
        log = [hit for hit in self.web.log if hit.started >= began and hit.ended < done]
        hits = [self.places.hit(hit) for hit in log]
        hosts = {host for scenario in self.scenarios for host in scenario.hosts}
        answered = {
            RESTARTED.host: any(h.host == RESTARTED.host and h.path == "/robots.txt" for h in hits),
            HELD.host: any(h.host == HELD.host and h.status in BUSY for h in hits),
        }
        return all(answered[host] for host in hosts & answered.keys())


def declared_by(scenarios: Iterable[Scenario]) -> frozenset[str]:
    """Return the URLs that a crawler may request without a redirect, except robots.txt."""
    declared = {url for scenario in scenarios for url in (*scenario.seeds, *scenario.pages)}
    indexes = {
        f"{scheme}://{host}/llms.txt"
        for scenario in scenarios
        for host in scenario.hosts
        for scheme in DEFAULT_PORTS
    }
    return frozenset(declared | indexes | {BLOCKLIST_URL})
