"""Files that a call names: reading them, and writing them completely or not at all."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self

from walsh_scrapy.files import UnreadableFile, atomic_file, read_within
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.tools.call import CommandError, WrongCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.tools.call import Call


class Output(NamedTuple):
    """The file to which a call writes."""

    target: str  #: `-` for standard output
    replaces: bool  #: whether a file that exists is replaced

    @classmethod
    def from_call(cls, call: Call) -> Self:
        """Return the file that the call names. Raises WrongCall, BadSetting and StateError.

        The state database, the sources file and the blocklist file are refused, because -O would
        replace them.
        """
        from walsh_scrapy.state.database import files_of

        new = call.arguments.output
        replaced = call.arguments.overwrite_output
        if bool(new) == bool(replaced):
            raise WrongCall("name one file: -o FILE, or -O FILE to replace one that exists")
        target = str(new or replaced)
        options = call.options
        names = [
            options.sources,
            getattr(call.arguments, "sources", None),
            options.blocklist_file,
        ]
        places = [*files_of(options.state_url), *(Path(name) for name in names if name)]
        if os.path.realpath(target) in {os.path.realpath(place) for place in places}:
            raise WrongCall(f"{target} is a file of this project; name another file")
        return cls(target, replaces=not new)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file, or standard output for `-`.

        Raises CommandError if the file must not be replaced, or cannot be written.
        """
        try:
            if not self.replaces and Path(self.target).is_file():
                raise CommandError(
                    f"{self.target} already exists; write -O instead of -o to replace it"
                )
            if self.target == "-":
                with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as file:
                    yield file
            else:
                with atomic_file(Path(self.target)) as file:
                    yield file
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CommandError(
                f"{self.target} cannot be written: {error.strerror or error}"
            ) from error

    @property
    def name(self) -> str:
        """The name of the file for messages."""
        return "standard output" if self.target == "-" else printable(self.target)

    def report(self, content: str) -> None:
        """Print a line about what was written, on standard error."""
        print(f"{content} written to {self.name}", file=sys.stderr)


def read_file(name: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Raises WrongCall."""
    try:
        if name == "-":
            return read_within(sys.stdin.buffer)
        with Path(name).open("rb") as file:  # this also opens a pipe: `--robots <(curl …)`
            return read_within(file)
    except UnreadableFile as error:
        raise WrongCall(f"{name}: {error}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if name.startswith(("http://", "https://")):
            raise WrongCall(
                f"{name} is a URL, not a file; download it first, for example with curl"
            ) from error
        reason = getattr(error, "strerror", None) or error
        raise WrongCall(f"{name} cannot be read: {reason}") from error
