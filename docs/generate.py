"""Write the generated parts of the reference pages: ``make references``.

A generated part stands below a heading, between the lines ``<!--generated-->`` and ``<!--end-->``.
The heading names a command, a setting, a table or a view. The text comes from the help of the
command, from the ``#:`` comments of the setting or the columns, or from the docstring of the view.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import math
import re
import textwrap
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.settings import Settings
from sqlalchemy import create_engine

from walsh_scrapy import options
from walsh_scrapy.console.commands import COMMANDS
from walsh_scrapy.console.program import build_parser
from walsh_scrapy.policy import pacing
from walsh_scrapy.policy.robots import copy
from walsh_scrapy.state import records, tables
from walsh_scrapy.state.views import VIEWS, create_views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DOCS: Final = Path(__file__).parent
_PART: Final = re.compile(
    r"^(##+ (?:walsh )?([^\n]+)\n\n<!--generated-->\n).*?(?=^<!--end-->$)", re.MULTILINE | re.DOTALL
)
#: What a sentence of a help text writes without backticks: a setting, or an option.
_NAME: Final = re.compile(r"\bWALSH_[A-Z_]+|(?<![\w-])--?[a-zA-Z][a-z-]*\b|(?<!\w)\.[a-z]{2,5}\b")
_WIDTH: Final = 119


class Page(NamedTuple):
    """A page with generated parts: what each part describes, and how it is written."""

    names: Iterable[str]
    describe: Callable[[str], str]


def generate(page: str) -> str:
    """Return the text of a page in which every generated part is written anew.

    Raises ValueError unless the page has one part for each name.
    """
    text = (DOCS / page).read_text("utf-8")
    names, describe = PAGES[page]
    headings = [match[2] for match in _PART.finditer(text)]
    if sorted(headings) != sorted(names):
        different = set(headings) ^ set(names)
        raise ValueError(f"{page} needs one generated part for each of {', '.join(different)}")
    return _PART.sub(lambda match: f"{match[1]}{describe(match[2]).strip()}\n", text)


# Commands


#: Options that several commands have; the page describes them once. Every command has ``-h``.
_COMMON: Final = (
    "output",
    "overwrite_output",
    "since",
    "sources",
    "json",
    "loglevel",
    "settings",
    "help",
)
_COMMON_OPTIONS: Final = "Options of several commands"


def _describe_command(name: str) -> str:
    """Return the help of a command: its description, arguments, examples and exit status 1."""
    if name == _COMMON_OPTIONS:
        return _describe_common_options()
    text, _, rest = COMMANDS[name].help_text.partition("\n\nexamples:\n")
    examples, _, statuses = rest.partition("\n\nexit status:\n")
    parts = [_as_markdown(paragraph) for paragraph in text.split("\n\n")]
    actions = _actions_of(name)
    arguments = [_argument(action) for action in actions if action.dest not in _COMMON]
    if common := [f"`{_call_of(action)}`" for action in actions if action.dest in _COMMON[:-2]]:
        arguments.append(f"- {', '.join(common)}")
    if arguments:
        parts.append("\n".join(arguments))
    parts.append(f"```sh\n{textwrap.dedent(examples).strip()}\n```")
    if failure := re.search(r"^ +1  ((?:.+\n?)+)", statuses, re.MULTILINE):
        parts.append(_fill(f"Exit status 1: {failure[1].strip()}."))
    return "\n\n".join(parts)


def _describe_common_options() -> str:
    actions = {action.dest: action for name in reversed(COMMANDS) for action in _actions_of(name)}
    return "\n".join(_argument(actions[name]) for name in _COMMON[:-1])


def _actions_of(name: str) -> list[argparse.Action]:
    """Return the arguments of a command in the order of its help."""
    parser = build_parser(name.split(maxsplit=1)[0])
    for word in name.split():
        (actions,) = (action for action in parser._actions if _has_parsers(action))  # noqa: SLF001
        parser = actions.choices[word]  # type: ignore[index]
    is_action = "action_settings"
    listed = [
        action
        for action in parser._actions  # noqa: SLF001 - argparse has no public list
        if not _has_parsers(action) and action.dest != is_action
    ]
    return sorted(listed, key=lambda action: bool(action.option_strings))


def _has_parsers(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - it has no public name


def _argument(action: argparse.Action) -> str:
    return _fill(f"- `{_call_of(action)}`: {_mark_names(action.help or '')}", "  ")


def _call_of(action: argparse.Action) -> str:
    """Return an argument as it is called, such as `--failing [DURATION]`."""
    value = action.metavar or ("|".join(action.choices) if action.choices else "")
    if action.nargs == "?":
        value = f"[{value}]"
    elif action.nargs in ("+", "*"):
        value = f"{value} ..."
    return " ".join([*action.option_strings[:1], *([value] if value else [])])


def _as_markdown(paragraph: str) -> str:
    """Return a paragraph of a help text, or an indented list of names with their meanings."""
    if not paragraph.startswith("  "):
        return _fill(_mark_names(" ".join(paragraph.split())))
    lines = re.sub(r"\n {5,}", " ", paragraph).splitlines()
    rows = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines]
    # A list of arguments may follow. It begins with "-", so Markdown takes it for another list.
    return "\n".join(_fill(f"* `{name}`: {_mark_names(what)}", "  ") for name, what in rows)


def _mark_names(text: str) -> str:
    """Put names in a sentence into backticks, and link settings."""
    parts = text.split("`")
    parts[::2] = [_NAME.sub(_mark_name, part) for part in parts[::2]]
    return "`".join(parts)


def _mark_name(match: re.Match[str]) -> str:
    name = match[0]
    is_setting = name.startswith(options.PREFIX)
    return f"[{name}](settings.md#{name.lower()})" if is_setting else f"`{name}`"


# Settings

_DEFAULTS: Final = options.Options.from_settings(Settings())
_SETTINGS: Final = {options.PREFIX + field.name.upper(): field for field in fields(_DEFAULTS)}


def _describe_setting(name: str) -> str:
    """Return the default, the limits or choices, and the description of a setting."""
    field = _SETTINGS[name]
    default = getattr(_DEFAULTS, field.name)
    if field.name == "state_url":
        default = default.replace(f"{Path.cwd()}/", "")
    line = f"Default: {_value(default)}."
    if field.name in options.DEFAULTS_OF_OWN_IDENTITY:
        own = _value(options.DEFAULTS_OF_OWN_IDENTITY[field.name])
        line = f"{line} For a bot with its own identity: {own}."
    values = field.metadata["arguments"]
    if values and isinstance(values[0], str):
        line = f"{line} One of {', '.join(_value(value) for value in values)}."
    elif values and values[1] == math.inf:
        line = f"{line} At least {_value(values[0])}."
    elif values:
        line = f"{line} From {_value(values[0])} to {_value(values[1])}."
    return f"{line}\n\n{_fill(_comments(options)['Options', field.name])}"


def _value(value: object) -> str:
    """Return a value as settings.py has it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


# Tables and views

_COLUMN_LINE: Final = re.compile(
    r"^([a-z_]+(?:, [a-z_]+)*): ((?:.+\n?)(?:^ +.+\n?)*)", re.MULTILINE
)


def _describe_relation(name: str) -> str:
    """Return the description of a table or a view, and a list of its columns.

    A table leaves out the columns that the view of it has.
    """
    if name in VIEWS:
        text = inspect.getdoc(VIEWS[name]) or ""
        listed = {names: " ".join(what.split()) for names, what in _COLUMN_LINE.findall(text)}
        first = text.partition("\n\n" + next(iter(listed)))[0] if listed else text
        columns = _view_columns()[name]
        meanings = _columns_of_table(name.removeprefix("readable_"))
        rows = _group_columns(columns, listed, meanings)
    else:
        table = tables.metadata.tables[name]
        first = _comments(tables)[name, ""]
        shown = _view_columns().get(f"readable_{name}", ())
        meanings = _columns_of_table(name)
        rows = [
            (column.name, meanings[column.name])
            for column in table.columns
            if column.name not in shown
        ]
    lines = [_fill(paragraph) for paragraph in first.split("\n\n")]
    items = [
        _fill(f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {what}", "  ")
        for names, what in rows
    ]
    return "\n\n".join([*lines, "\n".join(items)])


def _group_columns(
    columns: Iterable[str], listed: Mapping[str, str], meanings: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the columns of a view with their meanings; some lines describe several columns."""
    groups = {name: names for names in listed for name in names.split(", ")}
    rows: dict[str, str] = {}
    for column in columns:
        names = groups.pop(column, column)
        if names not in rows:
            rows[names] = listed[names] if names in listed else meanings[column]
    if groups:
        raise ValueError(f"no such columns: {', '.join(groups)}")
    return list(rows.items())


@cache
def _view_columns() -> dict[str, tuple[str, ...]]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        tables.create(connection)
        create_views(connection)
        return {
            view: tuple(connection.exec_driver_sql(f"SELECT * FROM {view}").keys())  # noqa: S608
            for view in VIEWS
        }


def _columns_of_table(name: str) -> dict[str, str]:
    """Return the comments on the columns of a table, and on the fields of its records."""
    scopes = {name, "_evidence", *_RECORDS.get(name, ())}
    modules = (tables, records, pacing, copy)
    return {
        column: text
        for module in modules
        for (scope, column), text in _comments(module).items()
        if scope in scopes and column
    }


_RECORDS: Final = {
    "hosts": ["HostTimes"],
    "robots": ["RobotsCopy"],
    "blocklist": ["BlocklistCopy"],
    "sources": ["SourceRecord"],
    "indexes": ["LlmsTxtRecord"],
}


@cache
def _comments(module: object) -> dict[tuple[str, str], str]:
    """Return the ``#:`` comments of a module, by the scope and the name that they describe.

    The scope is a class, a function, or the variable of a table. A comment on a table has no name.
    """
    source = inspect.getsource(module)  # type: ignore[arg-type]
    lines = source.splitlines()
    comments: dict[tuple[str, str], str] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            scope = statement.name
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            scope = statement.targets[0].id
            comments[scope, ""] = _comment_at(lines, statement)
        else:
            continue
        for node in ast.walk(statement):
            if name := _name_of(node):
                comments[scope, name] = _comment_at(lines, node)
    return {key: text for key, text in comments.items() if text}


def _name_of(node: ast.AST) -> str | None:
    """Return the name of a field of a class, or of a Column."""
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Name(id="Column"), args=[ast.Constant(value=str(name)), *_]):
            return name
    return None


def _comment_at(lines: list[str], node: ast.stmt | ast.expr) -> str:
    """Return the ``#:`` comment at the end of a node, or in the lines above it."""
    _, _, trailing = lines[node.end_lineno - 1].partition("  #: ")
    if trailing:
        return trailing
    above: list[str] = []
    for line in reversed(lines[: node.lineno - 1]):
        text = line.strip()
        if not text.startswith("#:"):
            break
        above.insert(0, text.removeprefix("#:").strip())
    return "\n".join(above).strip()


def _fill(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


PAGES: Final = {
    "commands.md": Page((_COMMON_OPTIONS, *COMMANDS), _describe_command),
    "settings.md": Page(_SETTINGS, _describe_setting),
}

if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(generate(page), "utf-8")
