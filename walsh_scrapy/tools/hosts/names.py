"""The name by which a host is paced: its own, or its registrable domain (decision 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walsh_scrapy.policy.pacedhosts import PaceBy


def paced_name(url: str, pace_by: PaceBy) -> str:
    """Return the host or registrable domain by which a URL is paced; empty if it has no host."""
    return pace_by.unit(url)


def unit_of(host: str, pace_by: PaceBy) -> str:
    """Return the host itself or its registrable domain, whichever is paced."""
    return pace_by.unit_of(host)


def held_name(url: str, pace_by: PaceBy) -> str:
    """Return the name under which the ledger keeps the hold of a URL's host."""
    return pace_by.hold(url)


def url_of(text: str) -> str:
    """Return the URL of what an operator typed: a host name, or a URL."""
    return text if "://" in text else f"http://{text}"
