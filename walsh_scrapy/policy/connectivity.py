"""Whose failure it is if no connection is possible: a host's or this machine's (decision 29)."""

from __future__ import annotations

from typing import Final, Literal

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

    def succeeded(self) -> None:
        """Record that a connection was made, or that the network resolved a name."""
        self._is_proven = True

    def failed(self, host: str) -> Fault:
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
