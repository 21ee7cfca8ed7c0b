"""What a file declares, as the record keeps it: copies of some thousand sources each (decision 33).

A file with more has several, by the keys of their URLs, and a copy that names these. So an edit of
one source makes one of them anew.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from sqlalchemy import false, func, or_, select, update

from walsh_scrapy.policy.audit.declared import document_of, keys_of, part_of, parts_of
from walsh_scrapy.sources import Source, declaration
from walsh_scrapy.state.documents import keep_copy
from walsh_scrapy.state.tables import copies, declared

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from walsh_scrapy.state.database import Database

#: Sources of one copy, about.
_MOST: Final = 4096
#: Seconds after which a copy that is still in force is noted as such again.
_NOTED: Final = 86_400.0
#: Which part of the sources an index is used for; of more, all are read.
_FEW: Final = 1 / 16
_KIND: Final = "sources"
_KEY: Final = declared.c.url_key


class DeclarationCopies:
    """Keeps what one file declares; ``file`` is its number in the state."""

    def __init__(self, database: Database, file: int, now: float) -> None:
        self._database = database
        self._file = file
        self._now = now

    def kept(self, name: str, changed: Collection[int] | None) -> str:
        """Keep what the file declares now, and return the name of its copy.

        ``name`` is that of before, and ``changed`` has the keys that changed since; None if these
        are not known.
        """
        counted = select(func.count()).select_from(declared)
        mine = counted.where(declared.c.file == self._file)
        number = self._database.read(lambda connection: connection.execute(mine).scalar_one())
        size = 1 << max(0, (number - 1) // _MOST).bit_length()
        before = self._parts(name)
        anew = set(range(size))
        if changed is not None and len(before) == size and self._are_kept([name, *before]):
            anew = {part_of(key, size) for key in changed}
        kept = {at: each for at, each in enumerate(before) if at not in anew}
        kept |= self._parts_anew(anew, size)
        parts = [kept[at] if at in kept else self._keep(b"") for at in range(size)]
        return parts[0] if size == 1 else self._keep(document_of(parts))

    def in_force(self, name: str) -> str:
        """Note that a copy is in force, and return its name; it is made anew if it was deleted."""
        names = [name, *self._parts(name)]
        is_old = copies.c.kept_at < self._now - _NOTED
        noted = update(copies).where(copies.c.hash.in_(names), is_old)
        noted = noted.values(kept_at=self._now)
        self._database.write(lambda connection: connection.execute(noted))
        return name if self._are_kept(names) else self.kept(name, None)

    def _are_kept(self, names: Sequence[str]) -> bool:
        counted = select(func.count()).select_from(copies).where(copies.c.hash.in_(names))
        number = self._database.read(lambda connection: connection.scalar(counted))
        return number == len(set(names))

    def _parts(self, name: str) -> list[str]:
        """Return the names of the parts of a copy, itself if it has none."""
        found = select(copies.c.body).where(copies.c.hash == name)
        body = self._database.read(lambda connection: connection.scalar(found))
        return parts_of(body or b"") or [name]

    def _parts_anew(self, parts: Collection[int], size: int) -> Iterator[tuple[int, str]]:
        """Keep the sources of some parts. Yield the number of each, and the name of its copy."""
        rows = select(_KEY, declared.c.url, declared.c.kind).where(declared.c.file == self._file)
        if len(parts) <= size * _FEW:  # the index of the keys finds them
            rows = rows.where(or_(false(), *(_KEY.between(*keys_of(at, size)) for at in parts)))
        # The order of no index: to find each row of a large table by itself takes far longer.
        with self._database.snapshot() as connection:
            found = connection.execute(rows.order_by(_KEY + 0))
            for at, of_part in groupby(found, lambda row: part_of(row[0], size)):
                if at in parts:
                    yield at, self._keep(declaration(Source(*row[1:]) for row in of_part))

    def _keep(self, body: bytes) -> str:
        return self._database.write(
            lambda connection: keep_copy(connection, _KIND, body, now=self._now, last=None)
        )
