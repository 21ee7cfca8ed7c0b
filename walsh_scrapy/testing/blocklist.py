"""An empty blocklist in the state of a test, in force for a week.

The published blocklist cannot be switched off under the Walsh-Research identity (decision 31), and
a test cannot reach it. A crawl on such a state has a list that is not due, so it asks for none.
"""

import json
import time
from contextlib import suppress
from typing import Final

from walsh_scrapy.identity import BLOCKLIST_URL, POLICY_URL
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.copies import BlocklistCopy

__all__ = ["keep_empty_blocklist"]

_EMPTY: Final = json.dumps(
    {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-01-01T00:00:00Z",
        "operator": "a test",
        "contact": "test@operator.example",
        "policy": POLICY_URL,
        "refresh": "P7D",
        "blocked": [],
    }
).encode()


def keep_empty_blocklist(state_url: str, now: float | None = None) -> None:
    """Keep an empty list as if it was fetched from its published URL at `now`, an epoch second.

    Without `now` that is this moment. Nothing is kept in a state that cannot be opened.
    """
    with suppress(StateError, UnicodeError):
        state = State(state_url)
        try:
            checked_at = time.time() if now is None else now
            state.blocklist.keep(BLOCKLIST_URL, BlocklistCopy(_EMPTY, None, None, checked_at))
        finally:
            state.close()
