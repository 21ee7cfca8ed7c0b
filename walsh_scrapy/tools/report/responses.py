"""What came of the requests: by kind of response, and by gate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from walsh_scrapy.state.requests import RequestRecord
    from walsh_scrapy.state.runs import RunRecord

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
#: The gates in the contract's order; others come after them.
_GATES: Final = ("blocklist", "scope", "publicweb", "robots")
_MOST_ANSWERS: Final = 8


class Share(NamedTuple):
    """One kind of response and how many there were."""

    kind: str  #: a key of KINDS
    number: int
    percent: float


@dataclass(frozen=True, slots=True)
class Gate:
    """What one gate answered: for requests that were sent, and for sources that it denied."""

    name: str
    answers: Sequence[tuple[str, int]]
    more: int  #: answers that are not listed
    passed: int
    denied: int


def kind_of(status: int | None) -> str:
    """Return the kind of a response, a key of KINDS, by its status; None for no response."""
    if status is None:
        return "none"
    if status in (429, 503):
        return "refused"
    if status == 304:
        return "unchanged"
    return {2: "full", 3: "redirect", 4: "client", 5: "server"}.get(status // 100, "none")


def shares(records: Sequence[RequestRecord]) -> list[Share]:
    """Return how many responses of each kind there were, without kinds that did not come."""
    counts = Counter(kind_of(record.status) for record in records)
    total = len(records)
    return [
        Share(kind, counts[kind], 100.0 * counts[kind] / total) for kind in KINDS if counts[kind]
    ]


def gates(records: Iterable[RequestRecord], runs: Iterable[RunRecord]) -> list[Gate]:
    """Return what each gate answered for the requests sent, and how often it denied.

    What a gate denied was not sent, so it is in the summaries of runs and not in the log.
    """
    answers: dict[str, Counter[str]] = {}
    for record in records:
        for answer in filter(None, record.gates.split("; ")):
            gate, _, said = answer.partition(": ")
            answers.setdefault(gate, Counter())[cut(said, 120)] += 1
    denied: Counter[str] = Counter()
    for run in runs:
        denied.update(_denied(run.summary))
    names = [*_GATES, *sorted({*answers, *denied} - set(_GATES))]
    return [
        _gate(name, answers.get(name, Counter()), denied[name])
        for name in names
        if name in answers or denied[name]
    ]


def _gate(name: str, answers: Counter[str], denied: int) -> Gate:
    listed = answers.most_common(_MOST_ANSWERS)
    return Gate(name, listed, len(answers) - len(listed), answers.total(), denied)


def _denied(summary: Mapping[str, object]) -> dict[str, int]:
    denied = summary.get("denied")
    if not isinstance(denied, dict):
        return {}
    return {str(gate): count for gate, count in denied.items() if isinstance(count, int)}
