"""SQL expressions for the views: in the dialect of the database, and as words for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.state.tables import LAST_MOMENT

if TYPE_CHECKING:
    from typing import Self

    from sqlalchemy import Dialect


class Terms(NamedTuple):
    """What a view takes instead of what the state knows; None for that."""

    #: the `id` of the sources file whose sources are declared, instead of the one read last
    file: int | None = None
    #: WALSH_MIN_REVISIT in seconds, instead of that of the last crawl
    min_revisit: float | None = None


NO_TERMS: Final = Terms()


@dataclass(frozen=True, slots=True)
class Sql:
    """The expressions that each database writes differently; ``now`` is the clock."""

    dialect: Dialect
    now: str  #: epoch seconds
    terms: Terms = NO_TERMS

    @classmethod
    def for_dialect(
        cls, dialect: Dialect, now: float | None = None, terms: Terms = NO_TERMS
    ) -> Self:
        """Return the expressions of a dialect; ``now`` (epoch seconds) replaces the clock."""
        if now is not None:
            clock = repr(float(now))
        elif dialect.name == "sqlite":
            clock = "((julianday('now') - 2440587.5) * 86400.0)"
        else:
            clock = "extract(epoch FROM now())::double precision"
        return cls(dialect, clock, terms)

    @property
    def file(self) -> str:
        """The sources file whose sources are declared: as in the terms, or the one read last."""
        newest = "(SELECT id FROM files ORDER BY read_at DESC, id DESC LIMIT 1)"
        return newest if self.terms.file is None else str(int(self.terms.file))

    @property
    def min_revisit(self) -> str:
        """Seconds between two visits of a source: as in the terms, or those of the last crawl."""
        if self.terms.min_revisit is not None:
            return repr(min(float(self.terms.min_revisit), 1e15))
        last = f"CAST({self.last_setting('min_revisit')} AS DOUBLE PRECISION)"
        return f"coalesce({last}, 86400.0)"

    def last_setting(self, name: str) -> str:
        """Return a setting of the last crawl; NULL if there was none."""
        last = "FROM runs WHERE command = '' ORDER BY id DESC LIMIT 1"
        return f"(SELECT {self.field('settings', name)} {last})"

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite; else it is PostgreSQL."""
        return self.dialect.name == "sqlite"

    def time(self, moment: str) -> str:
        """Return epoch seconds as RFC 3339; NULL for 0, NULL and `NEVER`."""
        shown = (
            f"to_char(to_timestamp({moment}) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
        )
        if self.is_sqlite:
            shown = f"strftime('%Y-%m-%dT%H:%M:%SZ', {moment}, 'unixepoch')"
        return f"CASE WHEN {moment} > 0 AND {moment} < {LAST_MOMENT} THEN {shown} END"

    def days_ago(self, moment: str) -> str:
        """Return the days since a moment."""
        return f"({self.now} - {moment}) / 86400.0"

    def field(self, column: str, name: str | int) -> str:
        """Return a field of a JSON object, or an element of a JSON array, as text or number."""
        if self.is_sqlite:
            path = f"$[{name}]" if isinstance(name, int) else f"$.{name}"
            return f"json_extract({column}, '{path}')"
        return f"({column}::json ->> {name if isinstance(name, int) else repr(name)})"

    def number(self, column: str, name: str) -> str:
        """Return a field of a JSON object that is a whole number."""
        return f"CAST({self.field(column, name)} AS BIGINT)"

    def joined(self, column: str, element: int, separator: str) -> str:
        """Return the texts of an array within a JSON array as one text."""
        if self.is_sqlite:
            rows = f"json_each({column}, '$[{element}]')"
            return f"(SELECT group_concat(value, '{separator}') FROM {rows})"
        rows = f"json_array_elements_text({column}::json -> {element}) AS value"
        return f"(SELECT string_agg(value, '{separator}') FROM {rows})"

    def text(self, column: str) -> str:
        """Return bytes as text."""
        return f"CAST({column} AS TEXT)" if self.is_sqlite else f"encode({column}, 'escape')"

    def header(self, column: str) -> str:
        """Return the bytes of a header as text, in hexadecimal digits if they are not ASCII."""
        if self.is_sqlite:
            value = f"CAST({column} AS TEXT)"
            return f"CASE WHEN {value} GLOB '*[^ -~]*' THEN hex({column}) ELSE {value} END"
        value = f"encode({column}, 'escape')"
        shown = rf"replace({value}, '\\', '\')"
        digits = f"upper(encode({column}, 'hex'))"
        return rf"CASE WHEN {value} ~ '\\[0-7]{{3}}' THEN {digits} ELSE {shown} END"

    def greatest(self, *values: str) -> str:
        """Return the largest of values that are not NULL."""
        return f"{'max' if self.is_sqlite else 'greatest'}({', '.join(values)})"

    def least(self, *values: str) -> str:
        """Return the smallest of values that are not NULL."""
        return f"{'min' if self.is_sqlite else 'least'}({', '.join(values)})"

    def digits(self, number: str, count: int) -> str:
        """Return the whole part of a number that is not negative as a text of ``count`` digits."""
        if self.is_sqlite:
            return f"printf('%0{count}d', CAST({number} AS INTEGER))"
        return f"lpad(CAST(CAST(floor({number}) AS BIGINT) AS TEXT), {count}, '0')"

    def position(self, part: str, column: str) -> str:
        """Return where a text has a part, from 1; 0 if it does not have the part."""
        return f"instr({column}, {part})" if self.is_sqlite else f"strpos({column}, {part})"

    def origin(self, url: str) -> str:
        """Return scheme, host and port of a web URL as it is written, without a user name."""
        slash = self.position("'/'", f"substr({url} || '/', 9)")
        start = f"substr({url} || '/', 1, {slash} + 7)"
        at = self.position("'@'", start)
        colon = self.position("':'", url)
        scheme = f"substr({url}, 1, {colon} + 2)"
        return f"CASE WHEN {at} > 0 THEN {scheme} || substr({start}, {at} + 1) ELSE {start} END"

    def first_line(self, column: str) -> str:
        """Return the first line of a text."""
        if self.is_sqlite:
            return f"substr({column}, 1, instr({column} || char(10), char(10)) - 1)"
        return f"split_part({column}, chr(10), 1)"


def whole(seconds: str) -> str:
    """Return seconds as a whole number."""
    return f"CAST(round({seconds}) AS BIGINT)"
