"""What `walsh status` reports in a month of an operator, in simulated time.

    python -m benchmarks.month [DAYS]

`tests.acceptance.month` has the troubles. Goals: at most 12 notices of `--since-last` in the month,
and none about anything but the scheduler, the disk, the ban, the blocklist, and the sources that
were not read for a week.
"""

import tempfile
from functools import partial
from pathlib import Path

from benchmarks.report import Figure, Report, run
from tests.acceptance.month import UNREAD, month
from walsh_scrapy.testing.simulated import simulate_here

#: The problems of a whole that are planned.
PLANNED = {"crawls_stopped", "last_crawl", "failing", "blocklist"}


def main(report: Report, days: int) -> None:
    """Print each notice, and count them."""
    with tempfile.TemporaryDirectory() as folder:
        looks = simulate_here(partial(month, Path(folder), days))
    surprises = 0
    for look in looks:
        for row in look.changes:
            is_planned = row["code"] in PLANNED or row["subject"] in UNREAD
            surprises += not is_planned
            words = [row["change"], row["severity"], row["code"], row["subject"] or ""]
            report.say(f"day {look.day:.2f}: {' '.join(words)}: {row['problem']}")
    report.add(
        f"{days} days",
        Figure("notices", len(looks), max_value=12),
        Figure("of them about something else", surprises, max_value=0),
    )


if __name__ == "__main__":
    run(main, 30)
