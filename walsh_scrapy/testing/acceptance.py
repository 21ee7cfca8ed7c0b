"""The conformance test of this project in seconds: its own crawls, in simulated time.

    python -m walsh_scrapy.testing.acceptance FOLDER trial days

`trial` crawls the scenarios of `walsh_scrapy.testing.conformance` as its command would, without a
kill: first, at once again, forced, restarted. `days` crawls the web of `conformance.days`. Each is
judged by its scenarios or rules, by what the web saw, and then by `scrapy attest`, by the state.
FOLDER gets a file of `Finding` objects for each, as JSON.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from walsh_scrapy.state import State
from walsh_scrapy.testing.clock import SimulatedTime
from walsh_scrapy.testing.conformance import SCENARIOS, Run, Seen, TrialLog
from walsh_scrapy.testing.conformance.days import (
    DAY,
    GONE,
    HOUR,
    LIST_URL,
    PAGE_STARTS,
    PAGES,
    SOURCES,
    STARTS,
    sites,
)
from walsh_scrapy.testing.conformance.optouts import BLOCKLIST_URL
from walsh_scrapy.testing.conformance.trial import declared_by
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.project import SourceLike, write_sources
from walsh_scrapy.testing.simulated import Simulation, simulate_here
from walsh_scrapy.tools.attest.attestation import attest
from walsh_scrapy.tools.attest.audit import audit

#: The runs of the trial. A kill has no place in simulated time.
_RUNS: Final = (Run.FIRST, Run.AGAIN, Run.FORCED, Run.RESTARTED)
#: Seconds before the last run: a Retry-After of an hour that is cut to minutes is over by then.
_NEARLY_AN_HOUR: Final = 3000.0
_AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"
#: Of the kind "feed" and of the kind "llms": which spider visits them.
_SPIDERS: Final = {"feeds": "feed", "llms": "llms"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one scenario, one rule or one row of the audit says."""

    name: str
    verdict: str  #: "pass", "fail" or "not applicable"; of the audit "holds" or else
    level: str = "MUST"
    reason: str = ""


class Acceptance:
    """The crawls of one web over one state, and what is found."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        self._simulation = simulation
        self._folder = folder
        self._state = f"sqlite:///{folder}/walsh.sqlite3"
        self.errors: list[str] = []  #: each traceback in a log

    async def crawl(
        self, spider: str, sources: Iterable[SourceLike], settings: Mapping[str, object],
        **arguments: str,
    ) -> list[Hit]:  # fmt: skip
        """Run one crawl of these sources, and return what the web saw."""
        place = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        declared = write_sources(place / "sources.toml", sources)
        given = {
            "WALSH_SOURCES": str(declared),
            "WALSH_STATE_URL": self._state,
            "WALSH_BLOCKLIST_SCHEMA_URL": "",
        }
        result = await self._simulation.crawl(spider, given | dict(settings), arguments, place)
        _, found, trace = result.stderr.partition("Traceback (most recent call last)")
        self.errors += [trace[-400:]] if found else []
        return result.log

    def audited(self) -> Iterator[Finding]:
        """Yield what the audit of the state says of each row of the checklist."""
        now = self._simulation.clock.wall + 3 * DAY
        with closing(State(self._state)) as state, state.log() as log:
            rows: list[dict[str, Any]] = attest(log, audit(log, now))["checklist"]
        for row in rows:
            kinds = [_named(each["kind"], each["level"]) for each in row["findings"]]
            yield Finding(f"row {row['row']}", row["verdict"], reason=", ".join(kinds))


def _named(name: str, level: str) -> str:
    return name if level == "MUST" else f"{name} ({level})"


async def trial(folder: Path, clock: SimulatedTime) -> list[Finding]:
    """Crawl and judge the scenarios of the conformance test."""
    served = {site.name: site for each in SCENARIOS for site in each.sites}
    acceptance = Acceptance(Simulation(served.values(), clock), folder)
    key, file = Ed25519PrivateKey.generate(), folder / "key.pem"
    file.touch(0o600)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    settings = {
        "WALSH_BLOCKLIST_URL": BLOCKLIST_URL,
        "WALSH_SIGNING_KEY": str(file),
        "WALSH_SIGNATURE_AGENT": _AGENT,
    }
    seen: list[Seen] = []
    for run in _RUNS:
        if run is Run.RESTARTED:
            clock.now += _NEARLY_AN_HOUR
        force = {} if run is Run.AGAIN else {"force": "1"}
        mine = [each for each in SCENARIOS if run in each.runs]
        for spider, kind in _SPIDERS.items():
            urls = [url for each in mine for url in (each.seeds if kind == "feed" else each.pages)]
            if sources := [{"url": url, "kind": kind} for url in dict.fromkeys(urls)]:
                hits = await acceptance.crawl(spider, sources, settings, **force)
                seen += (Seen(hit, run, hit.started) for hit in hits)
    everything, declared = tuple(seen), declared_by(SCENARIOS)
    found = []
    for each in SCENARIOS:
        log = TrialLog(
            everything, each.hosts, key=key.public_key(), has_proxy=True, declared=declared
        )
        finding = each.judge(log)
        found.append(Finding(each.name, finding.verdict, each.level, finding.reason))
    return [*found, *acceptance.audited(), *_crashes(acceptance)]


async def days(folder: Path, clock: SimulatedTime) -> list[Finding]:
    """Crawl and judge the web of days."""
    acceptance = Acceptance(Simulation(sites(), clock), folder)
    settings, seen, begun = {"WALSH_BLOCKLIST_URL": LIST_URL}, list[Hit](), clock.now
    for spider, starts, sources in (("feeds", STARTS, SOURCES), ("llms", PAGE_STARTS, PAGES)):
        for start in starts:
            clock.now = max(clock.now, start)
            seen += await acceptance.crawl(spider, sources, settings)
    broken = violations(
        seen,
        crawl_delays={"delay.example": 12.0},
        blocked=["out.example"],
        denied=["http://unchanged.example/no$", "http://broken.example/no$"],
        robots_exempt=[LIST_URL],
        robots_ttl=DAY,
        documents_ttl=6 * HOUR,
    )
    broken += violations([hit for hit in seen if hit.url != LIST_URL], revisit=DAY)
    # What this project promises beyond the contract.
    if seen[0].started - begun >= 1.0:
        broken.append("R4: the first request to a host is held back")
    if sum(hit.url == GONE for hit in seen) > 1:
        broken.append(f"R8: {GONE} is asked for again, although it is gone (410)")
    rules = {f"R{number}": list[str]() for number in range(1, 9)}
    for sentence in broken:
        rules[sentence[:2]].append(sentence)
    found = [
        Finding(rule, "fail" if said else "pass", reason=said[0] if said else "")
        for rule, said in rules.items()
    ]
    return [*found, *acceptance.audited(), *_crashes(acceptance)]


def _crashes(acceptance: Acceptance) -> list[Finding]:
    return [Finding("crash", "fail", reason=each) for each in acceptance.errors]


PARTS: Final = {"trial": trial, "days": days}


def main(folder: Path, parts: Iterable[str]) -> None:
    """Run these parts, and write what each found into the folder."""

    async def run(clock: SimulatedTime) -> None:
        for part in parts:
            place = folder / part
            place.mkdir(parents=True)
            found = await PARTS[part](place, clock)
            text = json.dumps([asdict(each) for each in found], indent=1)
            (folder / f"{part}.json").write_text(text, "utf-8")

    simulate_here(run)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
