"""Trouble of this machine: it ends the crawl in order, and counts against nobody (decision 29)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.runtime.engine import end_crawl

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


def machine_failed(crawler: Crawler, what: str) -> None:
    """End a crawl because this machine cannot make connections: ``what``, a clause for the log.

    For example "too many files are open". The request at hand ends with ``MachineTrouble``.
    """
    end_crawl(crawler, "machine_trouble", f"{what}; the run ends, and what is due stays due")


def export_failed(crawler: Crawler, uri: str, error: Exception) -> None:
    """End a crawl because an export cannot be written; the state has its entries (decision 18)."""
    end_crawl(
        crawler,
        "export_failed",
        f"the export {uri} cannot be written: {_reason(error)}; the run ends, and what is due "
        "stays due; `scrapy export` writes the entries that the state has",
    )


def summary_failed(crawler: Crawler, path: str, error: OSError) -> None:
    """Let a crawl that is at its end exit with 1, because its summary cannot be written."""
    why = f"the summary {path} cannot be written: {_reason(error)}; the state has it, in `runs`"
    end_crawl(crawler, "summary_failed", why)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
