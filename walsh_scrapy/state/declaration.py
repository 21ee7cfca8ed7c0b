"""What a file declares, as the record keeps it: copies of some thousand sources each (decision 33).

A file with more has several, by the keys of their URLs, and a copy that names these. So an edit of
one source makes one of them anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select, update

from walsh_scrapy.policy.audit.declared import document_of, keys_of, part_of, parts_of
from walsh_scrapy.sources import Source, declaration
from walsh_scrapy.state.evidence import keep_copy
from walsh_scrapy.state.tables import copies, declared

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from walsh_scrapy.state.database import Database

#: Sources of one copy, about.
_MOST: Final = 4096
#: Seconds after which a copy that is still in force is noted as such again.
_NOTED: Final = 86_400.0
_KIND: Final = "sources"


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
        with self._database.read() as connection:
            number = connection.scalar(counted.where(declared.c.file == self._file))
        size = 1 << max(0, (int(number) - 1) // _MOST).bit_length()
        before = self._parts(name)
        stay: set[int] = set()
        if changed is not None and len(before) == size and self._are_kept([name, *before]):
            stay = set(range(size)) - {part_of(key, size) for key in changed}
        parts = [before[at] if at in stay else self._part(at, size) for at in range(size)]
        return parts[0] if size == 1 else self._keep(document_of(parts))

    def in_force(self, name: str) -> str:
        """Note that a copy is in force, and return its name; it is made anew if it was deleted."""
        names = [name, *self._parts(name)]
        is_old = copies.c.kept_at < self._now - _NOTED
        noted = update(copies).where(copies.c.hash.in_(names), is_old)
        with self._database.write() as connection:
            connection.run(noted.values(kept_at=self._now))
        return name if self._are_kept(names) else self.kept(name, None)

    def _are_kept(self, names: Sequence[str]) -> bool:
        counted = select(func.count()).select_from(copies).where(copies.c.hash.in_(names))
        with self._database.read() as connection:
            return int(connection.scalar(counted)) == len(set(names))

    def _parts(self, name: str) -> list[str]:
        """Return the names of the parts of a copy, itself if it has none."""
        with self._database.read() as connection:
            body = connection.scalar(select(copies.c.body).where(copies.c.hash == name)) or b""
        return parts_of(body) or [name]

    def _part(self, at: int, size: int) -> str:
        """Keep the sources of one part, and return the name of the copy."""
        first, last = keys_of(at, size)
        key = declared.c.url_key
        of_part = select(declared.c.url, declared.c.kind).where(
            declared.c.file == self._file, key >= first, key <= last
        )
        with self._database.read() as connection:
            rows = connection.all(of_part.order_by(key))
        return self._keep(declaration(Source(*row) for row in rows))

    def _keep(self, body: bytes) -> str:
        with self._database.write() as connection:
            return keep_copy(connection, _KIND, body, now=self._now, last=None)
