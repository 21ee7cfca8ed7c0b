"""The upkeep of a state: ``walsh backup``, ``upgrade`` and ``forget``."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.tables import VERSION
from walsh_scrapy.tools.call import CommandError, Output, WrongCall

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call

#: What tells a URL from the name of a file.
_URL_MARK: Final = "://"


def run_backup(call: Call) -> int:
    """Copy the state database to the file or to the database that the call names."""
    new = call.arguments.output or ""
    replaced = call.arguments.overwrite_output or ""
    if _URL_MARK in new and not replaced:
        return _copy_to_database(call, new)
    if _URL_MARK in f"{new} {replaced}":
        raise WrongCall("a database is never replaced: write -o URL, without -O")
    output = Output.from_call(call)
    if output.target == "-":
        raise WrongCall(
            "a database cannot be written to standard output; write it to a file with -o FILE"
        )
    with call.state() as state:
        if not state.backups.is_file:
            raise CommandError(
                "the state database is on PostgreSQL; back it up with pg_dump --format=custom "
                "--file=walsh.dump --dbname=DATABASE, or copy it to SQLite with -o sqlite:///FILE"
            )
        with output.open() as file:
            state.backups.copy(Path(file.name))
    print(f"backed up the state database to {output.name}", file=sys.stderr)
    return 0


def _copy_to_database(call: Call, url: str) -> int:
    """Copy the state database to an empty database, and print the setting that names it."""
    from walsh_scrapy.state import StateError
    from walsh_scrapy.state.engine import bare_engine, names_file, setting_of, without_password
    from walsh_scrapy.state.moving import move

    try:
        target = bare_engine(url, "-o").url
    except StateError as error:
        raise WrongCall(str(error)) from error
    if target.get_backend_name() == "sqlite" and not names_file(target):
        raise WrongCall(f"-o {url} names no file; write sqlite:////absolute/path.sqlite3")
    with call.state() as state:
        counts = move(state.database, url, partial(print, file=sys.stderr, flush=True))
    rows = count_of(sum(counts.values()), "row")
    parts = [
        count_of(counts["runs"], "run"),
        count_of(counts["sources"], "source"),
        count_of(counts["entries"], "entry", "entries"),
        count_of(counts["requests"], "request"),
    ]
    print(f"copied {rows} to {without_password(url)}: {', '.join(parts)}", file=sys.stderr)
    print(f'WALSH_STATE_URL = "{setting_of(url)}"')
    return 0


def run_upgrade(call: Call) -> int:
    """Upgrade the state database, with a line for each step."""
    with call.state(partial(print, file=sys.stderr, flush=True)) as state:
        print(f"{state.database} has schema {VERSION}")
    return 0


def run_forget(call: Call) -> int:
    """Forget a source or a host. Raises CommandError if nothing is recorded."""
    from walsh_scrapy.feeds.stores import Stores
    from walsh_scrapy.feeds.stores.forgetting import Target
    from walsh_scrapy.policy.urls import host_of
    from walsh_scrapy.tools.sourcesfile import UnknownSource, find_sources

    word = call.arguments.target
    is_url = "://" in word
    url = word if is_url else f"http://{word}"
    host, paced = host_of(url), call.options.pace_by.unit(url)
    if not host:
        raise WrongCall(f"{word!r} is neither a URL nor a host name, such as blog.example")
    with call.state() as state:
        stores = Stores(state)
        if Path(call.sources_file).exists():
            stores.sync(call.sources_file, state.now())
        if is_url:
            with suppress(UnknownSource):  # a URL that is no source may have been requested
                url = find_sources(url, stores.sources.known_urls())[0]
        target = Target(host, paced, url if is_url else "")
        forgotten = stores.forgetting.forget(target, call.arguments.because or "")
    if not any(forgotten):
        hint = f"; `{program_name()} forget {host}` forgets its host" if is_url else ""
        raise CommandError(printable(f"nothing is recorded of {word}{hint}"))
    parts = [
        count_of(forgotten.requests, "request"),
        count_of(forgotten.denials, "denial"),
        count_of(forgotten.entries, "entry", "entries"),
        count_of(forgotten.sources, "source"),
        count_of(forgotten.documents, "document"),
    ]
    print(printable(f"deleted {', '.join(parts)} of {target}; backups and exports are not touched"))
    return 0
