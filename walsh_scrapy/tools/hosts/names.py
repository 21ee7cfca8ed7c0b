"""The name by which a host is paced: its own, or its registrable domain (decision 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.pacing import hold_name
from walsh_scrapy.policy.urls import host_of, registrable_domain

if TYPE_CHECKING:
    from walsh_scrapy.options.options import PaceBy


def paced_name(url: str, pace_by: PaceBy) -> str:
    """Return the host or registrable domain by which a URL is paced; empty if it has no host."""
    return unit_of(host_of(url), pace_by)


def unit_of(host: str, pace_by: PaceBy) -> str:
    """Return the host itself or its registrable domain, whichever is paced."""
    return registrable_domain(host) if pace_by == "domain" else host


def held_name(url: str, pace_by: PaceBy) -> str:
    """Return the name under which the ledger keeps the hold of a URL's host."""
    return hold_name(host_of(url), pace_by)


def url_of(text: str) -> str:
    """Return the URL of what an operator typed: a host name, or a URL."""
    return text if "://" in text else f"http://{text}"
