"""Failures: whose failure it is if no connection is possible (decision 29), and their reasons.

The same reason at many hosts is one line for the operator.
"""

import re
from collections import Counter
from typing import Final, Literal, NamedTuple

from walsh_scrapy.policy.wording import count_of

# What differs from host to host although the trouble is the same: addresses, days, a remark in
# parentheses at the end.
_VARYING: Final = re.compile(r"[a-z]+://\S+|\b\d{4}-\d\d-\d\d\b", re.IGNORECASE)
_NAME: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_REMARK: Final = re.compile(r" \([^()]*\)(?=\.?$)")
_TIMED_OUT: Final = re.compile(r"^(timed out): .*")


class ReasonGroup(NamedTuple):
    """Sources that failed for one reason."""

    reason: str  #: without the names of the hosts: `answered 404`
    sources: int
    hosts: tuple[str, ...]  #: each once, the one with the most sources first

    def line(self, most: int = 2) -> str:
        """Return the group as a phrase that names ``most`` hosts."""
        return f"{self.sources} {self.reason}: {shorten(self.hosts, most)}"


class ReasonGroups:
    """Counts sources by the kind of their reason, and by host within a kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, Counter[str]] = {}

    def add(self, host: str, reason: str) -> None:
        """Count a source of ``host`` that failed for ``reason``, a sentence."""
        self._kinds.setdefault(kind_of(reason, host), Counter())[host] += 1

    def largest_first(self) -> list[ReasonGroup]:
        """Return the groups, that of the most sources first."""
        groups = [
            ReasonGroup(kind, hosts.total(), tuple(host for host, _ in hosts.most_common()))
            for kind, hosts in self._kinds.items()
        ]
        return sorted(groups, key=lambda group: -group.sources)


def kind_of(reason: str, host: str) -> str:
    """Return a reason without what is special to its host.

    >>> kind_of("a.example answered 404", "a.example")
    'answered 404'
    """
    text = _VARYING.sub("…", reason)
    text = _NAME.sub(lambda found: "the host" if found[0] == host else found[0], text)
    text = _TIMED_OUT.sub(r"\1", text.removeprefix("the host "))
    return _REMARK.sub("", text).rstrip(".")


def shorten(names: tuple[str, ...], most: int) -> str:
    """Return the first names of a list, and how many hosts are left out.

    >>> shorten(("a", "b", "c", "d"), 2)
    'a, b and 2 more hosts'
    """
    shown, left = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {count_of(left, 'more host')}" if left > 0 else shown


Fault = Literal["host", "unknown", "machine"]

#: So many hosts in a row, and nothing that worked before: it is this machine.
ENOUGH_HOSTS: Final = 5


class Connectivity:
    """The evidence of one process.

    It is asked about failures that may be either: a name server that gives no answer, a network
    that is unreachable or down, an address that cannot be assigned.
    """

    def __init__(self) -> None:
        self._is_proven = False
        self._failed: set[str] = set()

    def record_success(self) -> None:
        """Record that a connection was made, or that the network resolved a name."""
        self._is_proven = True

    def fault_of(self, host: str) -> Fault:
        """Return whose failure this is.

        Once anything has worked it is the host's. Before that it is unknown for the first four
        hosts; with the fifth it is this machine's.
        """
        if self._is_proven:
            return "host"
        self._failed.add(host)
        return "machine" if len(self._failed) >= ENOUGH_HOSTS else "unknown"

    @property
    def offline(self) -> bool:
        """Whether nothing has worked, and something failed that may be this machine's failure."""
        return bool(self._failed) and not self._is_proven
