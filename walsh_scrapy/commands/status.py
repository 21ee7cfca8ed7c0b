"""``scrapy status``: is all well? For an operator, and for a monitor."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.tools.exits import clean_exit, sources_hint

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.status.facts import Facts
    from walsh_scrapy.tools.status.findings import Finding, Limits, Thresholds

#: Each threshold: its option, what it counts, and whether the larger number is worse.
_LIMITS = {
    "run_hours": ("hours since the last good run", True),
    "list_hours": ("hours since the blocklist was to be asked for again", True),
    "failing": ("percent of the sources that fail", True),
    "disk_mib": ("MiB that are free where the state is", False),
}


class Command(ScrapyCommand):
    """Judges the state. It may run beside a crawl, which does not wait for it."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options]"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Say whether all is well: runs, blocklist, sources, holds, disk, clock"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Judges the last runs, the blocklist, the share of sources that fail, holds, the free "
            "disk and the clock. The first line is the whole, then comes a line a check, the worst "
            "first. Sends nothing. Exit status, as monitoring plugins have it: 0 OK, 1 WARNING, "
            "2 CRITICAL, 3 UNKNOWN (the state or a setting cannot be read, or a wrong call). "
            "Examples: scrapy status. scrapy status --json. "
            "scrapy status --run-hours 3,6 --prometheus walsh.prom"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        from walsh_scrapy.tools.status.findings import Thresholds

        super().add_options(parser)
        # Else argparse exits with 2, which a monitor takes for CRITICAL.
        parser.error = _unknown  # type: ignore[method-assign]
        parser.add_argument(
            "--sources", metavar="FILE", help="sources file to use instead of WALSH_SOURCES"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--quiet", action="store_true", help="print nothing if all is well (for cron)"
        )
        parser.add_argument(
            "--prometheus", metavar="FILE", help="also write metrics to FILE, which ends in .prom"
        )
        for name, (what, _) in _LIMITS.items():
            limits: Limits = getattr(Thresholds(), name)
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                metavar="W,C",
                help=f"WARNING and CRITICAL: {what} (default: {limits[0]:g},{limits[1]:g})",
            )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Judge, print and write."""
        from walsh_scrapy.tools.status.findings import status_json, status_lines, worst

        if args:
            _unknown(
                f"`status` takes options only, not {args[0]}{sources_hint(args)}; "
                "see scrapy status --help"
            )
        limits = _thresholds(opts)
        if opts.quiet:  # the sources file may have warnings
            logging.getLogger("walsh_scrapy").setLevel(logging.ERROR)
        with clean_exit():
            facts, findings = _judged(self.settings or Settings(), opts.sources, limits)
            now = facts.now if facts else time.time()
            lines = [status_json(findings, now)] if opts.json else status_lines(findings)
            if worst(findings) or not opts.quiet:
                for line in lines:
                    print(line)
            sys.stdout.flush()
            if opts.prometheus:
                _write(opts.prometheus, findings, facts, now)
        self.exitcode = int(worst(findings))


def _judged(
    settings: Settings, file: str | None, limits: Thresholds
) -> tuple[Facts | None, list[Finding]]:
    """Return the facts and the findings; no facts, and why, if they cannot be read."""
    from walsh_scrapy.options import BadSetting, Options
    from walsh_scrapy.state import State, StateError
    from walsh_scrapy.tools.status.facts import gather
    from walsh_scrapy.tools.status.findings import Finding, Status, find

    try:
        options = Options.from_settings(settings)
        with State.existing(options.state_url) as state:
            if state is not None:
                facts = gather(state, options, file)
                return facts, find(facts, limits)
            why, advice = "there is none yet", "set WALSH_STATE_URL as the runs have it"
    except BadSetting as error:
        return None, [Finding(Status.UNKNOWN, "settings", str(error))]
    except StateError as error:
        why, advice = str(error), ""
    return None, [Finding(Status.UNKNOWN, "state", why, advice)]


def _thresholds(opts: argparse.Namespace) -> Thresholds:
    from walsh_scrapy.tools.status.findings import Limits, Thresholds

    given = {}
    for name, (what, larger_is_worse) in _LIMITS.items():
        text = getattr(opts, name)
        if text is None:
            continue
        try:
            warning, critical = map(float, text.split(","))
            is_ordered = warning <= critical if larger_is_worse else warning >= critical
        except ValueError:
            is_ordered = False
        if not is_ordered:
            order = "the second not smaller" if larger_is_worse else "the second not larger"
            option = f"--{name.replace('_', '-')}"
            _unknown(f"{option} {text} is not two numbers with a comma, {order}: {what}")
        given[name] = Limits(warning, critical)
    return Thresholds(**given)


def _write(path: str, findings: list[Finding], facts: Facts | None, now: float) -> None:
    from walsh_scrapy.tools.status.metrics import write_metrics

    try:
        write_metrics(path, findings, facts, now)
    except OSError as error:
        _unknown(f"--prometheus {path}: {error.strerror}")


def _unknown(message: str) -> NoReturn:
    """Exit as a monitoring plugin does that cannot do its work."""
    print(f"walsh-scrapy: {message}", file=sys.stderr)
    raise SystemExit(3)
