"""What is paced together: a host, or all hosts of a registrable domain (decision 5).

By domain, spacing and lease are those of the domain. A hold is that of one host name, and the
ledger has a row of its own for it, so that a host that is a domain itself holds no other.
"""

from enum import StrEnum

from walsh_scrapy.policy.urls import host_of, registrable_domain

_HELD = "."  # ends the name of the row of a hold; no host name ends so


class PaceBy(StrEnum):
    """What is paced together, as ``WALSH_PACE_BY`` names it."""

    HOST = "host"
    DOMAIN = "domain"

    def unit_of(self, host: str) -> str:
        """Return the host itself or its registrable domain, whichever is paced."""
        return registrable_domain(host) if self is PaceBy.DOMAIN else host

    def unit(self, url: str) -> str:
        """Return the host or domain by which a URL is paced; empty if it has no host."""
        return self.unit_of(host_of(url))

    def hold(self, url: str) -> str:
        """Return the name under which the ledger keeps the hold of a URL's host."""
        host = host_of(url)
        return f"{host}{_HELD}" if self is PaceBy.DOMAIN else host


def host_name(row: str) -> str:
    """Return the host or domain that a row of the ledger is about."""
    return row.removesuffix(_HELD)
