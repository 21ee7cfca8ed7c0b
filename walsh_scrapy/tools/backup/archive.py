"""The file of a backup: written, and read only if it is one.

It is a zip archive without compression, so it unpacks to no more than it is. It has
`manifest.json` and, in the same order, the files that this lists by name, size and SHA-256. No name
is a path: where a file is restored is up to whoever reads it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.sources.readers import reader_for
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zipfile import ZipInfo

_FORMAT: Final = 1  #: of the manifest; another one is refused
MANIFEST: Final = "manifest.json"
STATE: Final = "state.sqlite3"
_LONGEST_MANIFEST: Final = 1024 * 1024  #: bytes
_AT_ONCE: Final = 1024 * 1024  #: bytes
#: What a zip archive raises that is none, is cut, or is not ours.
_UNREADABLE: Final = (
    *(BadZipFile, EOFError, KeyError, NotImplementedError, RecursionError, TypeError),
    *(ValueError, struct.error),
)


@dataclass(frozen=True, kw_only=True)
class KeptFile:
    """A file in a backup."""

    name: str
    path: str  #: where it was
    size: int  #: bytes
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a backup has."""

    made: float  #: epoch seconds
    settings: dict[str, Any]
    files: tuple[KeptFile, ...]  #: the state first, unless it is on a server

    @property
    def has_state(self) -> bool:
        """Whether the state is in it."""
        return bool(self.files) and self.files[0].name == STATE

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return [file.name for file in self.files]


def write_archive(file: IO[bytes], manifest: Manifest, folder: Path) -> None:
    """Write the files of a folder, as a manifest lists them. Raises OSError."""
    with ZipFile(file, "w", strict_timestamps=False) as archive:
        written = {"format": _FORMAT, **asdict(manifest)}
        archive.writestr(MANIFEST, json.dumps(written, indent=1))
        for name in manifest.names:
            archive.write(folder / name, name)


def described(place: Path, path: str) -> KeptFile:
    """Return the entry of a file that is now at ``place``, and was at ``path``. Raises OSError."""
    with place.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return KeptFile(name=place.name, path=path, size=place.stat().st_size, sha256=digest)


@contextmanager
def open_archive(name: str) -> Iterator[ZipFile]:
    """Open an archive. Raises CommandError for whatever is found wrong with it in the block."""
    try:
        with ZipFile(name) as archive:
            yield archive
    except _UNREADABLE as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise CommandError(f"{name} is no whole backup of walsh-scrapy: {why}") from error


def read_manifest(archive: ZipFile) -> Manifest:
    """Return the manifest of an archive that has exactly what it lists. Raises ValueError.

    A TypeError or KeyError stands for a wrong value or a missing one.
    """
    first, *others = archive.infolist()
    if first.filename != MANIFEST or first.file_size > _LONGEST_MANIFEST:
        raise ValueError(f"it does not begin with {MANIFEST}")
    _check_plain(first)
    given = json.loads(archive.read(first))
    if not isinstance(given, dict) or given.pop("format") != _FORMAT:
        raise ValueError("it was made by another version")
    files = tuple(KeptFile(**each) for each in given.pop("files"))
    manifest = Manifest(**given, files=files)
    if not isinstance(manifest.settings, dict) or rfc3339(manifest.made) is None:
        raise ValueError(f"its {MANIFEST} is wrong")
    if [each.filename for each in others] != manifest.names:
        raise ValueError(f"it has not what its {MANIFEST} lists")
    for number, (each, info) in enumerate(zip(files, others, strict=True)):
        _check_plain(info)
        is_state = each.name == STATE and number == 0
        if not is_state and not is_operators(each.name):
            raise ValueError(f"it has {each.name!r}, which no backup has")
        if each.size != info.file_size:
            raise ValueError(f"the size of {each.name} is wrong")
    if len({each.name.casefold() for each in files}) != len(files):
        raise ValueError("it has two files of one name")
    if sum(each.size for each in files) > Path(str(archive.filename)).stat().st_size:
        raise ValueError("its files overlap")
    return manifest


def is_operators(name: str) -> bool:
    """Return True for the plain name of a list of sources or domains, and of nothing else."""
    is_plain = name == Path(name).name and not name.startswith(".") and name.isprintable()
    return is_plain and "\\" not in name and reader_for(Path(name).suffix) is not None


def _check_plain(info: ZipInfo) -> None:
    """Raise ValueError unless a member is a file as `write_backup` writes it."""
    kind = info.external_attr >> 28  # of Unix: 8 is a file, and 0 is none named
    is_other = info.is_dir() or kind not in (0, 8)
    is_packed = info.compress_type != ZIP_STORED or info.compress_size != info.file_size
    if is_other or is_packed or info.flag_bits & 1:
        raise ValueError(f"{info.filename!r} is a link, a folder, compressed or encrypted")


def unpack(archive: ZipFile, kept: KeptFile, file: IO[bytes]) -> None:
    """Write a file of a backup. Raises ValueError if it is not the one that was put in."""
    digest = hashlib.sha256()
    with archive.open(kept.name) as packed:
        while read := packed.read(_AT_ONCE):
            digest.update(read)
            file.write(read)
    if digest.hexdigest() != kept.sha256:
        raise ValueError(f"{kept.name} has changed since the backup was made")
