"""What the servers of a trial saw, as a scenario's judge gets it, and what the judge answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from walsh_scrapy.testing.connections import ConnectionRecord
    from walsh_scrapy.testing.hit import Hit

#: Seconds by which a pause may look shorter to a server than it was to a crawler that measures
#: from the start of one request to the start of the next.
SLACK: Final = 0.1
#: Headers of a request and of a response that prove something, shown with its line.
_TELLING: Final = (
    "Cookie",
    "Referer",
    "Authorization",
    "If-None-Match",
    "If-Modified-Since",
    "Signature-Input",
)
_TOLD: Final = ("Retry-After", "Location", "ETag", "Last-Modified")
_MOST_LINES: Final = 8


class Run(StrEnum):
    """One call of the command; all calls have the same folder."""

    FIRST = "first"
    AGAIN = "again"  #: at once, when no source is due yet
    FORCED = "forced"  #: at once, and the command is told to ask all the same
    KILLED = "killed"  #: ended by SIGKILL between two requests to a host
    RESTARTED = "restarted"  #: at once after that


class Verdict(StrEnum):
    """What the log shows of one scenario."""

    PASS = "pass"  # noqa: S105 - no secret
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"  #: the crawler never came to where it could have failed
    NOT_RUN = "could not run"  #: the time of the run was over before


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, its reason as a sentence without a full stop, and the lines that prove it."""

    verdict: Verdict
    reason: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, the run it belongs to, and the seconds since the trial began."""

    hit: Hit
    run: Run
    at: float
    original: Hit | None = None  #: as it was sent, if that was to an address

    @property
    def as_sent(self) -> Hit:
        """The request as it was sent: signatures are for the address, not for the name."""
        return self.original or self.hit

    @property
    def is_robots(self) -> bool:
        """True for a request of a robots.txt."""
        return self.hit.path == "/robots.txt"

    def line(self) -> str:
        """Return the request as a line of a log, with the headers that may prove something."""
        hit = self.hit
        sent = [f"{name}: {value}" for name in _TELLING if (value := hit.header(name))]
        got = [f"{name}: {value}" for name in _TOLD if (value := hit.answered(name))]
        parts = [f"{self.at:8.3f} s", self.run, hit.method, hit.url, *sent, "->"]
        return " ".join([*parts, str(hit.status or "no answer"), *got])


@dataclass(frozen=True, slots=True)
class Evidence:
    """The requests of a trial, in the order of their start."""

    everything: tuple[Seen, ...]
    hosts: frozenset[str]  #: of the scenario that is judged
    connections: tuple[ConnectionRecord, ...] = ()
    user_agent: str | None = None  #: that the caller expects, None if any
    key: Ed25519PublicKey | None = None  #: of the private key that the command was given
    has_proxy: bool = False  #: the hosts have names then, and connections are those to the proxy

    def seen(self, *runs: Run, host: str | None = None) -> list[Seen]:
        """Return the requests to the scenario's hosts, or to one, in these runs (default: all)."""
        hosts = self.hosts if host is None else {host}
        return [
            each
            for each in self.everything
            if each.hit.host in hosts and (not runs or each.run in runs)
        ]

    def pages(self, *runs: Run, host: str | None = None) -> list[Seen]:
        """Return the same without robots.txt."""
        return [each for each in self.seen(*runs, host=host) if not each.is_robots]


def passed(reason: str, seen: Iterable[Seen] = ()) -> Finding:
    """Return a pass."""
    return Finding(Verdict.PASS, reason, _lines(list(seen)))


def failed(reason: str, seen: Iterable[Seen]) -> Finding:
    """Return a failure, proved by these requests."""
    return Finding(Verdict.FAIL, reason, _lines(list(seen)))


def not_applicable(reason: str) -> Finding:
    """Return that the scenario does not apply to this crawler."""
    return Finding(Verdict.NOT_APPLICABLE, reason)


def _lines(seen: Sequence[Seen]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(each.line() for each in seen))
    more = len(unique) - _MOST_LINES
    return (*unique[:_MOST_LINES], *([f"and {more} more"] if more > 0 else []))
