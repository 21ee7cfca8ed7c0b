"""What `walsh status --since-last NAME` has reported, so that the next call tells what changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, select

from walsh_scrapy.policy.wording import storable
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.records import upsert
from walsh_scrapy.state.tables import reports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

_REPORTED_SQL: Final = select(reports.c.problems).where(reports.c.name == bindparam("of"))


class ReportStore(Store):
    """Remembers the problems of the last report under each name."""

    def exchange(self, name: str, problems: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Remember the problems of a report, and return those of the one before it."""
        row = {"name": name, "problems": storable(json.dumps(problems))}

        def write(connection: Connection) -> list[dict[str, Any]]:
            before = connection.scalar(_REPORTED_SQL, {"of": name})
            upsert(connection, reports, row)
            return json.loads(before) if before else []

        return self._database.write(write)
