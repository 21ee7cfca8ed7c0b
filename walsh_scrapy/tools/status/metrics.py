"""The facts as metrics of Prometheus, in a file for the node exporter's textfile collector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import write_to_textfile

from walsh_scrapy.tools.status.findings import ahead, clock_ahead, killed, long_holds, worst

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.tools.status.facts import Facts
    from walsh_scrapy.tools.status.findings import Finding


def write_metrics(path: str, findings: list[Finding], facts: Facts | None, now: float) -> None:
    """Write the file: a temporary one beside it is renamed, so no reader sees half of it.

    ``facts`` is None if the state cannot be read. Then there are only the status and the time; a
    number of an earlier moment would look as if all were well. Raises OSError.
    """
    registry = CollectorRegistry()

    def gauge(name: str, help_text: str, value: float) -> None:
        Gauge(f"walsh_{name}", help_text, registry=registry).set(value)

    gauge("status", "0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.", worst(findings))
    gauge("status_timestamp_seconds", "When the status was read.", now)
    checks = Gauge("walsh_check", "The status of one check.", ["check"], registry=registry)
    for each in findings:
        checks.labels(each.check).set(each.status)
    if facts is not None:
        _add_facts(gauge, facts)
    write_to_textfile(path, registry)


def _add_facts(gauge: Callable[[str, str, float], None], facts: Facts) -> None:
    if facts.good_run is not None:
        gauge("last_good_run_timestamp_seconds", "End of the last good run.", facts.good_run)
    gauge("killed_runs", "Runs of the last two days without an end.", len(killed(facts)))
    if facts.list_checked is not None and "blocklist" not in ahead(facts.latest, facts.now):
        checked, refresh = facts.list_checked, facts.list_refresh
        gauge("blocklist_checked_timestamp_seconds", "When its server answered last.", checked)
        gauge("blocklist_refresh_seconds", "After how long it is asked for again.", refresh)
    gauge("sources", "Declared sources.", facts.sources)
    gauge("sources_failing", "Declared sources whose last visit failed.", len(facts.failing))
    gauge("sources_refused", "Declared sources that their sites refuse.", len(facts.refused))
    if facts.refused:
        first = min(row.record.refused_since or facts.now for row in facts.refused)
        gauge("sources_refused_since_timestamp_seconds", "The first refusal.", first)
    gauge("hosts_on_hold", "Hosts on hold.", len(facts.held))
    gauge("hosts_on_long_hold", "Hosts that asked for over a day.", len(long_holds(facts)))
    gauge("workers", "Crawls that share the work now.", len(facts.workers))
    if facts.disk:
        gauge("state_disk_free_bytes", "Free where the state is.", facts.disk_free)
    gauge("clock_ahead_seconds", "How far times in the state are ahead.", clock_ahead(facts))
