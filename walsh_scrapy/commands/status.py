"""``scrapy status``: is all well? For an operator, and for a monitor."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.exits import missing_extra
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.status.facts import Facts
    from walsh_scrapy.tools.status.findings import Finding, Limits, Thresholds

#: Each threshold: its option, and what it counts.
_LIMITS = {
    "run_hours": "hours since the last good run",
    "failing": "percent of the sources that fail",
}


class Command(OperatorCommand):
    """Judges the state."""

    headline = "Say whether all is well: runs, blocklist, sources, holds, disk, clock"
    description = (
        "Judges the last runs, the blocklist, the share of sources that fail, holds, the free "
        "disk and the clock. The first line is the whole, then comes a line a check, the worst "
        "first. Sends nothing. Exit status, as monitoring plugins have it: 0 OK, 1 WARNING, "
        "2 CRITICAL, 3 UNKNOWN (the state or a setting cannot be read, or a wrong call). "
        "Examples: scrapy status. scrapy status --json. "
        "scrapy status --run-hours 3,6 --prometheus walsh.prom"
    )
    has_sources = True
    json = "one JSON object"
    usage_status = 3  # else a monitor takes a wrong call for CRITICAL

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        from walsh_scrapy.tools.status.findings import Thresholds

        super().add_options(parser)
        parser.error = self.refuse  # type: ignore[method-assign]
        parser.add_argument(
            "--quiet", action="store_true", help="print nothing if all is well (for cron)"
        )
        parser.add_argument(
            "--prometheus", metavar="FILE", help="also write metrics to FILE, which ends in .prom"
        )
        for name, what in _LIMITS.items():
            limits: Limits = getattr(Thresholds(), name)
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                metavar="W,C",
                help=f"WARNING and CRITICAL: {what} (default: {limits[0]:g},{limits[1]:g})",
            )

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Judge, print and write."""
        from walsh_scrapy.tools.status.findings import status_json, status_lines, worst

        limits = self._thresholds(opts)
        if opts.quiet:  # the sources file may have warnings
            logging.getLogger("walsh_scrapy").setLevel(logging.ERROR)
        facts, findings = self._judge(opts.sources, limits)
        now = facts.now if facts else time.time()
        if worst(findings) or not opts.quiet:
            print_lines([status_json(findings, now)] if opts.json else status_lines(findings))
        sys.stdout.flush()
        if opts.prometheus:
            self._write(opts.prometheus, findings, facts, now)
        return int(worst(findings))

    def _judge(self, file: str | None, limits: Thresholds) -> tuple[Facts | None, list[Finding]]:
        """Return the facts and the findings; no facts, and why, if they cannot be read."""
        from walsh_scrapy.options import BadSetting
        from walsh_scrapy.state import StateError
        from walsh_scrapy.tools.status.facts import gather
        from walsh_scrapy.tools.status.findings import Finding, Status, find

        try:
            with self.state_if_any() as state:
                if state is not None:
                    facts = gather(state, self.options, file)
                    return facts, find(facts, limits)
                why, advice = "there is none yet", "set WALSH_STATE_URL as the runs have it"
        except BadSetting as error:
            return None, [Finding(Status.UNKNOWN, "settings", str(error))]
        except StateError as error:
            why, advice = str(error), ""
        return None, [Finding(Status.UNKNOWN, "state", why, advice)]

    def _thresholds(self, opts: argparse.Namespace) -> Thresholds:
        from walsh_scrapy.tools.status.findings import Limits, Thresholds

        given = {}
        for name, what in _LIMITS.items():
            text = getattr(opts, name)
            if text is None:
                continue
            try:
                warning, critical = map(float, text.split(","))
                is_ordered = warning <= critical
            except ValueError:
                is_ordered = False
            if not is_ordered:
                numbers = "two numbers with a comma, the second not smaller"
                self.refuse(f"--{name.replace('_', '-')} {text} is not {numbers}: {what}")
            given[name] = Limits(warning, critical)
        return Thresholds(**given)

    def _write(self, path: str, findings: list[Finding], facts: Facts | None, now: float) -> None:
        try:
            from walsh_scrapy.tools.status.metrics import write_metrics

            write_metrics(path, findings, facts, now)
        except ModuleNotFoundError as error:
            self.refuse(missing_extra(error))
        except OSError as error:
            self.refuse(f"--prometheus {path}: {error.strerror}")
