"""The requests of a period: the pauses before them (R4, R5), what came of them, and the gates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.pauses import JudgedRequest
from walsh_scrapy.policy.wording import cut
from walsh_scrapy.runtime.gates import gate_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from walsh_scrapy.policy.audit.pauses import Pause, PauseJudge
    from walsh_scrapy.policy.audit.record import LoggedRequest
    from walsh_scrapy.state.log import DenialCount

#: The kinds of responses, in the order of the page.
KINDS: Final = {
    "full": "200 to 299: a document",
    "unchanged": "304: unchanged",
    "redirect": "other 3xx: a redirect",
    "refused": "429 and 503: asked to wait",
    "client": "other 4xx: not there, or not for us",
    "server": "other 5xx: the server failed",
    "none": "no response",
}
_MOST_ANSWERS: Final = 8
_LONGEST_ANSWER: Final = 120


@dataclass(frozen=True, slots=True)
class HostLine:
    """The requests to one host, the first one first."""

    host: str
    sent: list[JudgedRequest] = field(default_factory=list)

    @property
    def smallest(self) -> Pause | None:
        """The smallest pause; None if no pause is known."""
        return min(self._pauses(), key=lambda each: each.kept or 0.0, default=None)

    @property
    def asked(self) -> Pause | None:
        """The pause before which most was asked for; None if no pause is known."""
        return max(self._pauses(), key=lambda each: each.asked, default=None)

    @property
    def short(self) -> int:
        """How many pauses were shorter than asked for."""
        return sum(each.pause.is_breach for each in self.sent)

    def listed(self, most: int) -> list[JudgedRequest]:
        """Return the last requests, and before them the last ones that came too soon.

        Each of the two are ``most`` at most.
        """
        start = max(0, len(self.sent) - most)
        early = [each for each in self.sent[:start] if each.pause.is_breach]
        return [*early[-most:], *self.sent[start:]]

    def _pauses(self) -> Iterable[Pause]:
        return (each.pause for each in self.sent if each.pause.kept is not None)


def host_lines(
    records: Iterable[LoggedRequest],
    judge: PauseJudge,
    is_included: Callable[[LoggedRequest], bool],
) -> list[HostLine]:
    """Return the line of each host, those with short pauses first, then the longest.

    ``records`` come in the order of the judge, and may include others before those that are
    included: a pause counts from the last request of any run.
    """
    lines: dict[str, HostLine] = {}
    for record in records:
        judged = JudgedRequest(record, judge.judge(record))
        if is_included(record):
            lines.setdefault(record.host, HostLine(record.host)).sent.append(judged)
    return sorted(lines.values(), key=lambda line: (-line.short, -len(line.sent), line.host))


class Share(NamedTuple):
    """One kind of response and how many there were."""

    kind: str  #: a key of KINDS
    number: int
    percent: float


@dataclass(frozen=True, slots=True)
class Answers:
    """What a gate said, and how often; the most frequent first."""

    total: int
    listed: Sequence[tuple[str, int]]
    more: int  #: answers that are not listed


@dataclass(frozen=True, slots=True)
class GateCounts:
    """What one gate said of requests: of those that were sent, and of those that it denied."""

    name: str
    passed: Answers
    denied: Answers


def kind_of(status: int | None) -> str:
    """Return the kind of a response, a key of KINDS, by its status; None for no response."""
    if status is None:
        return "none"
    if status in (429, 503):
        return "refused"
    if status == 304:
        return "unchanged"
    return {2: "full", 3: "redirect", 4: "client", 5: "server"}.get(status // 100, "none")


def shares(records: Sequence[LoggedRequest]) -> list[Share]:
    """Return how many responses of each kind there were, without kinds that did not come."""
    counts = Counter(kind_of(record.status) for record in records)
    total = len(records)
    return [
        Share(kind, counts[kind], 100.0 * counts[kind] / total) for kind in KINDS if counts[kind]
    ]


def gates(records: Iterable[LoggedRequest], denials: Iterable[DenialCount]) -> list[GateCounts]:
    """Return what each gate said: of the requests that were sent, and of those that it denied."""
    passed: dict[str, Counter[str]] = {}
    for record in records:
        for answer in filter(None, record.gates.split("; ")):
            gate, _, said = answer.partition(": ")
            passed.setdefault(gate, Counter())[cut(said, _LONGEST_ANSWER)] += 1
    denied: dict[str, Counter[str]] = {}
    for denial in denials:
        reasons = denied.setdefault(denial.gate, Counter())
        reasons[cut(denial.reason, _LONGEST_ANSWER)] += denial.number
    return [
        GateCounts(name, _answers(passed.get(name)), _answers(denied.get(name)))
        for name in gate_names([*passed, *denied])
        if name in passed or name in denied
    ]


def _answers(said: Counter[str] | None) -> Answers:
    said = said or Counter()
    listed = said.most_common(_MOST_ANSWERS)
    return Answers(said.total(), listed, len(said) - len(listed))
