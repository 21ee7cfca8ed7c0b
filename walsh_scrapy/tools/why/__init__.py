"""``walsh why URL|HOST``: the requests to a host on one day, as a letter to its owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Read the state and print the letter."""
    from walsh_scrapy.tools.show import print_lines
    from walsh_scrapy.tools.why.account import give_account
    from walsh_scrapy.tools.why.letter import letter, record_of

    given = call.arguments
    with call.state() as state, state.log() as log:
        account = give_account(state, log, call.options, given.subject, given.on, _sources(call))
    print_lines([json.dumps(record_of(account))] if given.json else letter(account))
    return 0


def _sources(call: Call) -> Sequence[Source] | None:
    """Return the declared sources; None, with a message, if they cannot be read."""
    from walsh_scrapy.sources.loading import load_sources
    from walsh_scrapy.sources.source import SourcesError

    file, is_given = call.sources_file, call.arguments.sources
    if not is_given and call.options.scope == "any" and not Path(file).exists():
        return None  # a project that follows links needs no such file
    try:
        return load_sources(file)
    except SourcesError as error:
        warn(f"the declared sources are left out: {error}")
        return None
