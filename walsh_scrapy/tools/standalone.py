"""The commands that need no project: ``walsh init``, ``keys`` and ``lint``."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from walsh_scrapy.policy.robots.robotslint import lint as find_mistakes
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError, WrongCall, read_file
from walsh_scrapy.tools.show import print_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from walsh_scrapy.policy.robots.robotslint import Finding
    from walsh_scrapy.policy.signing import PrivateKey
    from walsh_scrapy.tools.call import Call

#: The files of a new project, with an additional extension.
_TEMPLATES: Final = Path(__file__).parent / "templates" / "project"
_EXTENSION: Final = ".tmpl"
#: What a project name on Scrapyd must not have, because it is part of file names and of URLs.
_NOT_IN_PROJECT_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


def run_init(call: Call) -> int:
    """Create the project, and print the next steps."""
    folder = Path(call.arguments.folder)
    write_project(folder)
    is_here = folder.resolve() == Path.cwd()
    change = "" if is_here else f"cd {shlex.quote(str(folder))} && "
    lines = f"""\
Created the project {folder.resolve().name}. Before the first crawl:
- set WALSH_USER_AGENT in {folder / "settings.py"}
- replace the example in {folder / "sources.toml"} by the feeds that you want
Then:
  {change}scrapy crawl feeds
  {program_name()} new"""
    print_lines(lines.splitlines())
    return 0


def write_project(folder: Path) -> None:
    """Create a project. Raises CommandError if a file cannot be written.

    Nothing is written if one of the files already exists.
    """
    name = folder.resolve().name
    quoted_name = json.dumps(name)
    project_name = _NOT_IN_PROJECT_NAME.sub("_", name)
    files: dict[str, str] = {}
    for template in sorted(_TEMPLATES.rglob(f"*{_EXTENSION}")):
        text = template.read_text("utf-8").replace("@NAME@", quoted_name)
        path = str(template.relative_to(_TEMPLATES)).removesuffix(_EXTENSION)
        files[path] = text.replace("@PROJECT@", project_name)
    for path in files:
        if os.path.lexists(folder / path):
            raise CommandError(f"{folder / path} already exists; name another folder")
    for path, text in files.items():
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CommandError(f"{target} cannot be written: {reason}") from error


_DAY: Final = 86_400
_FILE_MODE: Final = 0o600


def run_keys(call: Call) -> int:
    """Create a key, or print the key directory or its header fields."""
    from walsh_scrapy.crawl.messages import host_field
    from walsh_scrapy.policy.signing import directory_body, directory_fields

    arguments = call.arguments
    if arguments.action == "new":
        thumbprint = write_new_key(arguments.file)
        print(f"wrote {printable(arguments.file)} (id {thumbprint})")
        return 0
    if arguments.days and not arguments.headers:
        raise WrongCall("--days needs --headers")
    options = call.options
    names = arguments.files or [name for name in [options.signing_key] if name]
    if not names:
        raise WrongCall(
            f"no key given: name a key file ({program_name()} keys directory key.pem), or set "
            "WALSH_SIGNING_KEY"
        )
    keys = read_keys(names)
    body = directory_body([key.public for key in keys])
    if not arguments.headers:
        sys.stdout.write(body.decode("ascii"))
        return 0
    if not options.signature_agent:
        raise WrongCall("set WALSH_SIGNATURE_AGENT to the URL at which you publish the directory")
    host = host_field(urlsplit(options.signature_agent).netloc)
    lifetime = (arguments.days or 30) * _DAY
    for name, value in directory_fields(keys, host, body, time.time(), lifetime).items():
        print(f"{name}: {value}")
    return 0


def write_new_key(name: str) -> str:
    """Write a new private key to a file that only its owner can read; return the thumbprint.

    Raises CommandError if the file exists or cannot be written.
    """
    from walsh_scrapy.crawl.failures import words_of
    from walsh_scrapy.policy.signing import PrivateKey

    key = PrivateKey.generate()
    path = Path(name)
    try:
        # Mode x never opens an existing file or symbolic link.
        with open(path, "xb", opener=partial(os.open, mode=_FILE_MODE)) as file:
            try:
                file.write(key.pem)
                file.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise CommandError(
            f"{name} already exists, and keys are never overwritten: name a new file"
        ) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"{name} cannot be written: {words_of(error)}") from None
    return key.public.thumbprint


def read_keys(names: Iterable[str]) -> list[PrivateKey]:
    """Read the keys in the files, without duplicates. Raises CommandError."""
    from walsh_scrapy.crawl.messages import UnusableKey, read_key

    try:
        keys = [read_key(Path(name)) for name in names]
    except UnusableKey as error:
        raise CommandError(str(error)) from None
    return list({key.public.thumbprint: key for key in keys}.values())


def run_lint(call: Call) -> int:
    """Print the findings; return 1 if one is an error."""
    files = [(name, find_mistakes(read_file(name))) for name in call.arguments.file]
    if call.arguments.json:
        rows = (
            {"file": name, **asdict(finding)} for name, findings in files for finding in findings
        )
        print_lines(map(json.dumps, rows))
    else:
        print_lines(line for name, findings in files for line in _report(name, findings))
    severities = {finding.severity for _, findings in files for finding in findings}
    return 1 if "error" in severities else 0


def _report(name: str, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a line for each finding in the file ``name``, and then the number of findings."""
    for finding in findings:
        where = name if finding.line is None else f"{name}:{finding.line}"
        yield f"{where}: {finding.severity}: {finding.text}"
    errors = sum(finding.severity == "error" for finding in findings)
    yield f"{name}: {count_of(errors, 'error')}, {count_of(len(findings) - errors, 'note')}"
