"""``scrapy new``: what is new, as a list to read."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from walsh_scrapy.tools.command import OperatorCommand

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping


class Command(OperatorCommand):
    """Lists new entries."""

    headline = "List what is new: the entries of the last run that found something"
    description = (
        "Lists new entries by source, the newest first: when they were published, their title "
        "and their URL. Without --since these are the entries since the begin of the last run "
        "that found something. Exit status: 0, also if nothing is new; 1 if it cannot be done, "
        "2 for a wrong call. Examples: scrapy new. scrapy new --since yesterday. "
        "scrapy new --since 7d --json"
    )
    json = "one JSON array"
    since = "entries first seen since then"

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """List what is new."""
        from walsh_scrapy.tools.newentries import default_since, new_items
        from walsh_scrapy.tools.output import json_array, print_lines

        is_run = opts.since is None
        with self.state_if_any() as state:
            since = default_since(state, time.time()) if state and is_run else opts.since
            if state is None or since is None:
                _say_none(as_json=opts.json)
            elif opts.json:
                print_lines(json_array(new_items(state, since)))
            else:
                _show(new_items(state, since), since, is_run=is_run)
        return 0


def _say_none(*, as_json: bool) -> None:
    if as_json:
        print("[]")
    words = "no recorded run has found anything; --since WHEN lists by time"
    print(words, file=sys.stderr if as_json else sys.stdout)


def _show(items: Iterable[Mapping[str, Any]], since: float, *, is_run: bool) -> None:
    from rich.console import Console

    from walsh_scrapy.tools.newentries import NewEntry, new_lines, totals
    from walsh_scrapy.tools.output import show

    found = [NewEntry.of(item) for item in items]
    show(new_lines(found, Console().width if sys.stdout.isatty() else None))
    print(totals(found, since, is_run=is_run))
