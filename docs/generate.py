"""Write the generated parts of the reference pages: ``make references``.

A generated part stands below a heading, between the lines ``<!--generated-->`` and ``<!--end-->``.
The heading names a command, a setting or a view, or what the add-on changes. The text comes from
the help of the command, from the ``#:`` comment of the setting, from the docstring of the view, or
from the tables of the add-on. The histories are of those that a test plays.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import math
import re
import textwrap
from contextlib import ExitStack
from dataclasses import fields
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.settings import Settings
from sqlalchemy import create_engine

from tests.helpers.histories import HISTORIES
from walsh_scrapy import addon, options
from walsh_scrapy.console import build_parser
from walsh_scrapy.console.commands import COMMANDS
from walsh_scrapy.crawl.startup import GATES, SPIDER_GATES, Gate, Kind
from walsh_scrapy.policy.urls import SCHEMES
from walsh_scrapy.state import tables
from walsh_scrapy.state.views import VIEWS, create_views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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

#: Options that several commands have. The page describes them once, with ``-s``.
_SHARED: Final = ("output", "overwrite_output", "since", "sources", "json", "loglevel")
_OF_EVERY_COMMAND: Final = ("help", "settings", "action_settings")
_SHARED_HEADING: Final = "Options of several commands"


def _describe_command(name: str) -> str:
    """Return the help of a command: its description, its arguments and its first example."""
    if name == _SHARED_HEADING:
        return _describe_shared_options()
    text, _, rest = COMMANDS[name].help_text.partition("\n\nexamples:\n")
    examples = rest.partition("\n\nexit status:\n")[0]
    parts = [_as_markdown(paragraph) for paragraph in text.split("\n\n")]
    actions = [action for action in _actions_of(name) if action.dest not in _OF_EVERY_COMMAND]
    lines = [_describe_argument(action) for action in actions if action.dest not in _SHARED]
    shared = [f"`{_call_of(action)}`" for action in actions if action.dest in _SHARED]
    if shared:
        lines.append(f"- {', '.join(shared)}")
    if lines:
        parts.append("\n".join(lines))
    first = textwrap.dedent(examples).strip().partition("\n")[0]
    parts.append(f"```sh\n{first}\n```")
    return "\n\n".join(parts)


def _describe_shared_options() -> str:
    """Return the options of several commands, each as the first command describes it."""
    actions = {action.dest: action for name in reversed(COMMANDS) for action in _actions_of(name)}
    return "\n".join(_describe_argument(actions[name]) for name in (*_SHARED, "settings"))


def _actions_of(name: str) -> list[argparse.Action]:
    """Return the arguments of a command, those without a dash first."""
    parser = build_parser(name.split(maxsplit=1)[0])
    for word in name.split():
        (actions,) = (action for action in parser._actions if _has_parsers(action))  # noqa: SLF001
        parser = actions.choices[word]  # type: ignore[index]
    listed = [action for action in parser._actions if not _has_parsers(action)]  # noqa: SLF001
    return sorted(listed, key=lambda action: bool(action.option_strings))


def _has_parsers(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - it has no public name


def _describe_argument(action: argparse.Action) -> str:
    return _fill(f"- `{_call_of(action)}`: {_mark_names(action.help or '')}", "  ")


def _call_of(action: argparse.Action) -> str:
    """Return an argument as it is called, such as `--failing [DURATION]`."""
    value = str(action.metavar or "|".join(action.choices or ()))
    if action.nargs == "?":
        value = f"[{value}]"
    elif action.nargs in ("+", "*"):
        value = f"{value} ..."
    return " ".join([*action.option_strings[:1], value]).strip()


def _as_markdown(paragraph: str) -> str:
    """Return a paragraph of a help text, or an indented list of names with their meanings."""
    if not paragraph.startswith("  "):
        return _fill(_mark_names(" ".join(paragraph.split())))
    lines = re.sub(r"\n {5,}", " ", paragraph).splitlines()
    rows = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines]
    # A list of arguments may follow. It begins with "-", so Markdown takes it for another list.
    return "\n".join(_fill(f"* `{name}`: {_mark_names(meaning)}", "  ") for name, meaning in rows)


def _mark_names(text: str) -> str:
    """Put names in a sentence into backticks, and link settings."""
    outside_and_inside = text.split("`")
    outside_and_inside[::2] = [_NAME.sub(_mark_name, part) for part in outside_and_inside[::2]]
    return "`".join(outside_and_inside)


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
    if field.name in options.WALSH_RESEARCH_DEFAULTS:
        own = _value(options.WALSH_RESEARCH_DEFAULTS[field.name])
        line = f"{line} For Walsh-Research: {own}."
    values = field.metadata["arguments"]
    if values and isinstance(values[0], str):
        line = f"{line} One of {', '.join(_value(value) for value in values)}."
    elif values and values[1] == math.inf:
        line = f"{line} At least {_value(values[0])}."
    elif values:
        line = f"{line} From {_value(values[0])} to {_value(values[1])}."
    return f"{line}\n\n{_fill(_comments(options.Options)[field.name])}"


def _value(value: object) -> str:
    """Return a value as settings.py has it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


# Views

_COLUMN_LINE: Final = re.compile(
    r"^([a-z_0-9]+(?:, [a-z_0-9]+)*): ((?:.+\n?)(?:^ +.+\n?)*)", re.MULTILINE
)


def _describe_view(name: str) -> str:
    """Return the description of a view and a list of its columns."""
    *paragraphs, lines = inspect.cleandoc(VIEWS[name].__doc__ or "").split("\n\n")
    meanings: dict[str, str] = {}
    for names, meaning in _COLUMN_LINE.findall(lines):
        meanings |= dict.fromkeys(names.split(", "), meaning)
    columns = _columns_of_views()[name]
    if different := meanings.keys() ^ set(columns):
        raise ValueError(f"{name} does not describe its columns: {', '.join(different)}")
    groups = groupby(columns, key=meanings.__getitem__)
    items = [_item(names, meaning) for meaning, names in groups]
    return "\n\n".join([*(_fill(_mark_names(text)) for text in paragraphs), "\n".join(items)])


def _item(names: Iterable[str], meaning: str) -> str:
    return _fill(f"- {', '.join(f'`{name}`' for name in names)}: {_mark_names(meaning)}", "  ")


@cache
def _columns_of_views() -> dict[str, tuple[str, ...]]:
    with ExitStack() as stack:
        engine = create_engine("sqlite://")
        stack.callback(engine.dispose)  # Python 3.13 warns of a connection that nobody closed
        connection = stack.enter_context(engine.begin())
        tables.create(connection)
        create_views(connection)
        return {
            view: tuple(connection.exec_driver_sql(f"SELECT * FROM {view}").keys())  # noqa: S608
            for view in VIEWS
        }


# The add-on

_FORCED: Final = "Forced settings"
_COMPONENTS: Final = "Components"
_ONLY_DECLARED: Final = "  # declared crawls only"


def _describe_addon(name: str) -> str:
    """Return what the add-on changes, for both kinds of crawl."""
    return _describe_forced_settings() if name == _FORCED else _describe_components()


def _describe_forced_settings() -> str:
    own, declared = _forced_of(Kind.OWN), _forced_of(Kind.DECLARED)
    lines = []
    for name, value in own.items():
        other = "" if declared[name] == value else f"; in a declared crawl {declared[name]}"
        lines.append(f"- `{name}`: {value}{other}")
    also = [f"- `{name}`: {value}" for name, value in declared.items() if name not in own]
    return "\n".join(["In every crawl:", "", *lines, "", "In a declared crawl also:", "", *also])


def _forced_of(kind: Kind) -> dict[str, str]:
    """Return the value of each setting that a kind of crawl forces, in words."""
    ceilings = {name: f"at most `{maximum}`" for name, maximum in addon.CEILINGS[kind].items()}
    values = addon.MUSTS | (addon.DECLARED_MUSTS | addon.SERIAL if kind is Kind.DECLARED else {})
    return {
        "USER_AGENT": "the name of your bot",
        **{name: _value(value) for name, (value, _) in values.items()},
        **{name: _value(value) for name, value in addon.DELAYS.items()},
        "RETRY_HTTP_CODES": "without 429 and 503",
        "HTTPCACHE_IGNORE_HTTP_CODES": "with 429 and 503",
        **ceilings,
    }


def _describe_components() -> str:
    own = addon.CHAINS[Kind.OWN]
    middlewares = [
        line
        for gate in GATES[Kind.DECLARED]
        for line in _lines_of(gate, note="" if gate.path in own else _ONLY_DECLARED)
    ]
    notes = {Kind.DECLARED: _ONLY_DECLARED, Kind.OWN: "  # own crawls only"}
    spider = [
        f'    "{path}": {order},{note}'
        for kind, note in notes.items()
        for path, order in SPIDER_GATES[kind].items()
    ]
    extensions = [
        f'    "{path}": {order},{"" if path in addon.EXTENSIONS[Kind.OWN] else _ONLY_DECLARED}'
        for path, order in addon.EXTENSIONS[Kind.DECLARED].items()
    ]
    handlers = [
        f'    "{scheme}": "{addon.HANDLERS[Kind.OWN]}",  # unless you name one'
        for scheme in SCHEMES
    ]
    parts = (
        "```python",
        "DOWNLOADER_MIDDLEWARES = {",
        *middlewares,
        "}",
        "SPIDER_MIDDLEWARES = {",
        *spider,
        "}",
        "EXTENSIONS = {",
        *extensions,
        "}",
        "DOWNLOAD_HANDLERS = {",
        *handlers,
        "}",
        "```",
    )
    handler = addon.HANDLERS[Kind.DECLARED]
    text = f"A declared crawl has `{handler}` for both, and no handler for any other scheme."
    return "\n".join(parts) + f"\n\n{_fill(text)}"


def _lines_of(gate: Gate, note: str) -> Iterator[str]:
    if gate.replaced:
        yield f'    "{gate.replaced}": None,{note}'
    yield f'    "{gate.path}": {gate.order},{note}'


# Comments


def _comments(thing: object) -> dict[str, str]:
    """Return the ``#:`` comments above the variables of a module or the fields of a class."""
    source = textwrap.dedent(inspect.getsource(thing))  # type: ignore[arg-type]
    body = ast.parse(source).body
    if isinstance(body[0], ast.ClassDef):
        body = body[0].body
    comments: dict[str, str] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                comments[name] = _comment_above(source.splitlines(), statement.lineno)
    return comments


def _comment_above(lines: list[str], number: int) -> str:
    above: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip().removeprefix("#:"))
    return " ".join(above)


def _fill(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


# Identity

_LIMITS: Final = "Where nothing tells entries apart"


def _describe_limits(_name: str) -> str:
    """Return the histories in which an entry is lost or reported twice; a test plays history."""
    limits = [history for history in HISTORIES if history.is_limit]
    lines = []
    for history in limits:
        happens = history.happens[0].upper() + history.happens[1:]
        lines.append(_fill(f"- **{history.source}**: {history.does}. {happens}.", "  "))
    return "\n".join(lines)


PAGES: Final = {
    "commands.md": Page((_SHARED_HEADING, *COMMANDS), _describe_command),
    "identity.md": Page((_LIMITS,), _describe_limits),
    "reuse.md": Page((_FORCED, _COMPONENTS), _describe_addon),
    "settings.md": Page(_SETTINGS, _describe_setting),
    "state.md": Page(VIEWS, _describe_view),
}

if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(generate(page), "utf-8")
