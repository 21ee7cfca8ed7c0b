"""Judgements: what `scrapy attest` found in the days and months that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete

from walsh_scrapy.state.database import Store
from walsh_scrapy.state.rows import upsert
from walsh_scrapy.state.tables import judgements

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from walsh_scrapy.policy.audit.judgements import Judgement


class JudgementStore(Store):
    """Keeps judgements; `AuditRecord.judgements` reads them."""

    def keep(self, new: Iterable[Judgement], outdated: Collection[str] = ()) -> None:
        """Keep judgements in the place of older ones, and forget ``outdated`` periods."""
        with self._database.write() as connection:
            for judgement in new:
                upsert(connection, judgements, judgement._asdict())
            if outdated:
                connection.run(delete(judgements).where(judgements.c.period.in_(outdated)))
