"""Statements as SQL: SQLAlchemy writes it, once for each statement and database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import ARRAY, Boolean, Select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Dialect

    from walsh_scrapy.state.connection import Row, Statement, Values


class Compiled(NamedTuple):
    """A statement's SQL for one kind of database."""

    sql: str
    order: Sequence[str] | None  #: of positional parameters; None if they are named
    own: Row  #: values that the statement has itself
    booleans: Sequence[int]  #: columns to be made Boolean: SQLite, without the type, has 1 and 0
    options: Row  #: with which PostgreSQL's driver runs it

    def parameters(self, row: Row) -> Row | list[Any]:
        """Return the values of all parameters, as the driver takes them."""
        values = {**self.own, **row} if self.own else row
        return values if self.order is None else [values[name] for name in self.order]

    def typed(self, found: Values) -> Values:
        """Return a row that was found, with the types of its columns."""
        if not self.booleans:
            return found
        values = list(found)
        for at in self.booleans:
            values[at] = bool(values[at])
        return tuple(values)


_compiled: Final[WeakKeyDictionary[Statement, dict[str, Compiled]]] = WeakKeyDictionary()


def compiled_for(dialect: Dialect, statement: Statement, row: Row) -> Compiled:
    """Compile a statement. Every row given to it has a value for each parameter that is named."""
    of_statement = _compiled.setdefault(statement, {})
    if (known := of_statement.get(dialect.name)) is not None:
        return known
    core = statement.compile(
        dialect=dialect,
        column_keys=list(row) or None,
        compile_kwargs={"render_postcompile": not row},  # of lists of values
    )
    own = {name: value for name, value in core.params.items() if name not in row}
    columns = statement.selected_columns if isinstance(statement, Select) else ()
    booleans = [at for at, column in enumerate(columns) if isinstance(column.type, Boolean)]
    # The plan of a look-up by an array is kept for no other: one that was made while its table was
    # nearly empty would read all of it.
    has_array = any(isinstance(each.type, ARRAY) for each in core.binds.values())
    compiled = of_statement[dialect.name] = Compiled(
        str(core),
        core.positiontup,
        own,
        booleans if dialect.name == "sqlite" else (),
        {"prepare": False} if has_array else {},
    )
    return compiled
