"""What ``scrapy backup`` puts into one file, and how it gets back: all of it, or nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import ExitStack
from itertools import chain, count
from pathlib import Path
from shlex import quote as quote_word
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from sqlalchemy import make_url

from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.sources.readers import reader_for
from walsh_scrapy.state import State
from walsh_scrapy.state.backup import check_pages, file_of, files_of
from walsh_scrapy.tools.backup.archive import (
    MANIFEST,
    STATE,
    KeptFile,
    Manifest,
    described,
    is_operators,
    open_archive,
    read_manifest,
    unpack,
    write_archive,
)
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.files import atomic_file

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from zipfile import ZipFile

    from walsh_scrapy.options import Options


def write_backup(file: IO[bytes], state: State, options: Options) -> Manifest:
    """Write a backup, and return what is in it.

    All files are collected in a temporary folder first. Raises CommandError if one cannot be read
    or if there is no room, StateError for a damaged state.
    """
    with TemporaryDirectory() as folder:
        made = state.now()
        kept = tuple(_collected(Path(folder), state, options))
        manifest = Manifest(made=made, settings=options.for_record(), files=kept)
        write_archive(file, manifest, Path(folder))
    return manifest


def _collected(folder: Path, state: State, options: Options) -> Iterator[KeptFile]:
    """Copy what belongs to a backup into a folder; yield each file."""
    if state.backups.is_file:
        state.backups.copy(folder / STATE)
        yield described(folder / STATE, str(file_of(options.state_url)))
    found = [path for path in sources_files(state, options) if path.is_file()]
    if options.blocklist_file:
        found.append(Path(options.blocklist_file).resolve())
    taken = {MANIFEST, STATE}
    for path in dict.fromkeys(found):
        name = _name_for(path, taken)
        taken.add(name.casefold())
        try:
            shutil.copyfile(path, folder / name)
        except OSError as error:
            raise CommandError(f"{path} cannot be copied: {error.strerror}") from error
        yield described(folder / name, str(path))


def sources_files(state: State, options: Options) -> list[Path]:
    """Return ``WALSH_SOURCES`` and the sources files of late runs, there or not, each once."""
    named = (Path(options.sources), *state.backups.sources_files())
    return list(dict.fromkeys(path.resolve() for path in named))


def _name_for(path: Path, taken: Container[str]) -> str:
    """Return the name of a file in a backup: its own, unless another one has that.

    Whatever is no source file is a list of domains as a text.
    """
    name = path.name if reader_for(path.suffix) else f"{path.name}.txt"
    if not is_operators(name):
        raise CommandError(f"{path} has a name that cannot be restored; give it another one")
    names = (f"{number}-{name}" for number in count(2))
    return next(each for each in chain([name], names) if each.casefold() not in taken)


def dump_command(url: str) -> str:
    """Return the command that dumps a state on PostgreSQL, without its password."""
    return f"pg_dump --format=custom --file=walsh.dump --dbname={_for_libpq(url)}"


def _for_libpq(url: str) -> str:
    """Return the URL of a state as the programs of PostgreSQL take it, without its password."""
    address = make_url(url).difference_update_query(["password", "sslpassword"])
    return quote_word(address._replace(drivername="postgresql", password=None).render_as_string())


def restore(name: str, options: Options) -> list[str]:
    """Restore a backup where nothing is yet; return lines that say what is where now.

    The state goes where ``WALSH_STATE_URL`` says, each other file beside ``WALSH_SOURCES``. All of
    it is written, or nothing. Raises CommandError for a file that is no sound backup, and for a
    place that is not empty; StateError for a state of another version.
    """
    folder, place = Path(options.sources).absolute().parent, file_of(options.state_url)
    try:
        with open_archive(name) as archive:
            manifest = read_manifest(archive)
            others = {each: folder / each for each in manifest.names if each != STATE}
            if manifest.has_state is (place is None):
                raise CommandError(
                    "WALSH_STATE_URL names a server, but the state in the backup is a file"
                    if place is None
                    else "WALSH_STATE_URL names a file, but the state of the backup is on a server"
                )
            # A log of a state that is left over would be read into the new one.
            state = files_of(options.state_url)
            _check_empty([Path(options.sources), *others.values(), *state])
            told: list[str] = []
            if place is None:
                told += _restore_beside_server(archive, manifest, others, options)
            else:
                _restore_file(archive, manifest, others, place)
    except OSError as error:
        why = f"{error.filename or name}: {error.strerror or error}"
        raise CommandError(f"the backup cannot be restored: {why}") from error
    return [*_said(manifest, others, place, options), *told]


def _restore_file(
    archive: ZipFile, manifest: Manifest, others: dict[str, Path], place: Path
) -> None:
    """Write all files; the state is the last to get its name."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix=".restore-") as staging:
        state = Path(staging, STATE)
        with state.open("xb") as file:
            unpack(archive, manifest.files[0], file)
        _check_state(state, manifest)
        _write_each(archive, manifest, others)
        state.replace(place)


def _restore_beside_server(
    archive: ZipFile, manifest: Manifest, others: dict[str, Path], options: Options
) -> Iterator[str]:
    """Write all files, then let the next crawl say that the state is a backup.

    Yields a line instead if a run began on that state after the backup was made: it may be live.
    """
    with State.existing(options.state_url) as state:
        if state is None:
            again = f"pg_restore --dbname={_for_libpq(options.state_url)} walsh.dump"
            raise CommandError(f"restore the dump of the state first: {again}")
        _write_each(archive, manifest, others)
        if later := state.runs.latest(1, since=manifest.made):
            yield (
                "the state on the server is not marked as restored: its last run began at "
                f"{format_moment(later[0].begun)}, after the backup was made"
            )
        else:
            state.backups.mark_restored(manifest.made)


def _write_each(archive: ZipFile, manifest: Manifest, others: dict[str, Path]) -> None:
    """Write the files beside the state, all or none."""
    with ExitStack() as written:
        for each in manifest.files:
            if each.name in others:
                unpack(archive, each, written.enter_context(atomic_file(others[each.name])))


def _check_empty(places: Iterable[Path]) -> None:
    """Raise CommandError if there is anything at one of these paths."""
    for place in places:
        if place.exists() or place.is_symlink():
            raise CommandError(
                f"{place} is there already, and a backup is restored only where nothing is; move "
                "it away first"
            )


def _check_state(file: Path, manifest: Manifest) -> None:
    """Check a state that was unpacked, and let the next crawl say that it is a backup."""
    try:
        check_pages(file)
    except (sqlite3.Error, ValueError) as error:
        raise CommandError(f"the state in the backup is no sound database: {error}") from error
    with State.existing(f"sqlite:///{quote(str(file))}") as state:
        if state is None:
            raise CommandError("the database in the backup is no state")
        state.backups.mark_restored(manifest.made)


def _said(
    manifest: Manifest, others: dict[str, Path], place: Path | None, options: Options
) -> Iterator[str]:
    """Yield what was restored to where, and which settings differ."""
    yield f"restored from the backup of {format_moment(manifest.made)}:"
    targets = {**others, STATE: place}
    yield from (f"  {targets[each.name]} (was {each.path})" for each in manifest.files)
    here = json.loads(json.dumps(options.for_record()))  # as the manifest has them
    for name, value in manifest.settings.items():
        if name in here and here[name] != value:
            yield f"WALSH_{name.upper()} is {here[name]!r} here and was {value!r} there"
