"""The llms.txt of a host, which is requested once for all sources that need it (R9)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from sqlalchemy import bindparam, delete, select

from walsh_scrapy.state.database import Store
from walsh_scrapy.state.rows import record_of
from walsh_scrapy.state.tables import indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmsTxtRecord:
    """What is known of one llms.txt: a row of the table ``indexes``. Times are epoch seconds."""

    url: str
    asked_at: float = 0.0
    due_at: float = 0.0
    trouble: str = ""  #: why it could not be used, as a sentence; empty if it was read
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None


_LLMSTXT_COLUMNS: Final = tuple(indexes.c[field.name] for field in fields(LlmsTxtRecord))
_FIND_LLMSTXT: Final = select(*_LLMSTXT_COLUMNS).where(indexes.c.url == bindparam("key"))


class LlmsTxtStore(Store):
    """Finds and forgets records; ``SourceStore.change`` writes them, with the visit's source."""

    def find(self, url: str) -> LlmsTxtRecord | None:
        """Return what is known of an llms.txt, or None if it was never requested."""
        row = self._database.read(
            lambda connection: connection.execute(_FIND_LLMSTXT, {"key": url}).first()
        )
        return None if row is None else record_of(LlmsTxtRecord, row)

    def forget(self, url: str) -> None:
        """Delete what is known of an llms.txt, so that the next visit requests it again."""
        is_this = indexes.c.url == url
        self._database.write(lambda connection: connection.execute(delete(indexes).where(is_this)))
