"""The real `scrapy crawl` in a separate process, in front of a web of a test.

    result = run_crawl(web, sources=["http://blog.example/feed.xml"], folder=tmp_path)
    assert result.exit_code == 0

Runs that share a folder share their state in it. The process gets the web as its proxy for http and
https, or the names and ports of a web without a proxy. So none of its requests leaves the machine.
"""

import ast
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from configparser import ConfigParser
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, Required, Self, TypedDict, Unpack

from walsh_scrapy.identity import BLOCKLIST_URL
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.documents import hash_of
from walsh_scrapy.state.records import BlocklistCopy
from walsh_scrapy.testing.hit import ConnectionRecord, Hit
from walsh_scrapy.testing.web import Web

#: A URL, or the fields of a `[[source]]`: url, kind, name, tags, every, delay.
SourceLike = str | Mapping[str, str | float | list[str]]


def write_sources(path: Path, sources: Iterable[SourceLike]) -> Path:
    """Write a sources file and return its path: a list if the name ends in .txt, else TOML."""
    entries = [{"url": source} if isinstance(source, str) else source for source in sources]
    if path.suffix == ".txt":
        text = "".join(f"{entry['url']}\n" for entry in entries)
    else:
        text = "\n".join(map(_table, entries))
    path.write_text(text, encoding="utf-8")
    return path


def _table(entry: Mapping[str, str | float | list[str]]) -> str:
    # JSON strings and lists of them are TOML too, if no character becomes a surrogate pair.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join(["[[source]]", *lines, ""])


_EMPTY: Final = b'{"contract": "walsh-research-blocklist/v1", "refresh": "P7D", "blocked": []}'


def keep_blocklist(state: State, url: str, document: bytes, requested_at: float) -> None:
    """Keep a document as the list that was adopted from `url` at an epoch second."""
    adopted = Blocklist.parse(document).text()
    copy = BlocklistCopy(hash_of(document), None, None, requested_at, adopted)
    state.blocklist.keep(url, copy, document)


#: The URL of a file whose path has no character that a URL escapes.
_PLAIN_FILE: Final = re.compile(r"sqlite:///(/[\w./-]+)")


def copy_new_state(state_url: str) -> None:
    """Make the file of a new state, unless there is one, by copying a state that was made before.

    That is three times as fast as making one. Nothing is done for other URLs than that of a file.
    """
    found = _PLAIN_FILE.fullmatch(state_url)
    if found and not os.path.lexists(found[1]):
        with suppress(OSError):
            Path(found[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(found[1]).write_bytes(_new_state())


@cache
def _new_state() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "walsh.sqlite3"
        State(f"sqlite:///{file}").close()
        return file.read_bytes()


def keep_empty_blocklist(state_url: str, now: float | None = None) -> None:
    """Keep an empty list as if it was fetched from its published URL at `now`, an epoch second.

    Without `now` that is this moment. Nothing is kept in a state that cannot be opened.
    """
    with suppress(StateError, UnicodeError):
        state = State(state_url)
        try:
            requested_at = time.time() if now is None else now
            keep_blocklist(state, BLOCKLIST_URL, _EMPTY, requested_at)
        finally:
            state.close()


def find_project(start: Path) -> Path:
    """Return the nearest folder with a scrapy.cfg, from `start` upward; FileNotFoundError."""
    here = start.resolve()
    for folder in (here, *here.parents):
        if (folder / "scrapy.cfg").is_file():
            return folder
    raise FileNotFoundError(f"no scrapy.cfg in {here} or above: pass project=, the folder of one")


def settings_of(run: Path, sources: Iterable[SourceLike] | Path | None) -> dict[str, object]:
    """Return the settings of a run in this folder: a state next to it, no published schema."""
    state = run.parent / "walsh.sqlite3"
    given: dict[str, object] = {
        "WALSH_STATE_URL": f"sqlite:///{state}",
        "WALSH_BLOCKLIST_SCHEMA_URL": "",
        "STATS_DUMP": True,
    }
    if isinstance(sources, Path):
        given["WALSH_SOURCES"] = sources.resolve()
    elif sources is not None:
        given["WALSH_SOURCES"] = write_sources(run / "sources.toml", sources)
    return given


def environment_of(project: Path) -> dict[str, str]:
    """Return our environment as if started in `project`, whose scrapy.cfg names its settings."""
    config = ConfigParser()
    config.read(project / "scrapy.cfg", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")}
    path = os.pathsep.join(filter(None, (str(project), os.environ.get("PYTHONPATH"))))
    named = {"PYTHONPATH": path, "SCRAPY_SETTINGS_MODULE": config.get("settings", "default")}
    return kept | named | {"PYTHONUNBUFFERED": "1"}


def join_environments(environment: dict[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return both environments as one, where PYTHONPATH has the folders of both."""
    paths = filter(None, (each.get("PYTHONPATH") for each in (others, environment)))
    return environment | dict(others) | {"PYTHONPATH": os.pathsep.join(paths)}


class Process(Protocol):
    """A process that was started: the part of `subprocess.Popen` that tests use."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None until `poll` or `wait` saw the end."""

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise subprocess.TimeoutExpired after `timeout` seconds."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def terminate(self) -> None:
        """Send SIGTERM."""


#: Starts a process, as `subprocess.Popen` does, which is one: it gets the command, and by name
#: `cwd`, `env`, `stdin`, `stdout` and `stderr`.
Launcher = Callable[..., Process]

_STATS: Final = re.compile(r"Dumping Scrapy stats:\n(\{.*?\})\s*$", re.DOTALL | re.MULTILINE)
_DATETIME: Final = re.compile(r"datetime\.datetime\(([^()]*)\)")

#: An item or the stats: JSON and Scrapy's dictionary, of any shape.
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """A crawl that has ended, by itself or by a signal."""

    exit_code: int  #: negative: the signal that ended it
    stdout: str
    stderr: str  #: Scrapy's log
    items: list[Record] = field(default_factory=list)
    stats: Record = field(default_factory=dict)  #: empty if none were dumped into the log
    log: list[Hit] = field(default_factory=list)  #: the requests to the web since the crawl's start
    connections: list[ConnectionRecord] = field(default_factory=list)  #: the same of connections
    seconds: float = 0.0  #: from start to end of the process
    folder: Path = Path()  #: of this run


def read_items(path: Path) -> list[Record]:
    """Read exported JSON lines; without a last one that a kill cut short."""
    if not path.exists():
        return []
    # Not splitlines: a JSON string may hold U+2028, which does not end a line here.
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.strip()]


def read_stats(stderr: str) -> Record:
    """Read the stats that Scrapy dumps into its log; moments in time come as text."""
    found = _STATS.findall(stderr)
    if not found:
        return {}
    try:
        stats: Record = ast.literal_eval(_DATETIME.sub(r"'\1'", found[-1]))
    except (SyntaxError, ValueError):
        return {}  # a stat of another type: the log has it, as text
    return stats


_POLL_SECONDS: Final = 0.02
_TAIL: Final = 4000
#: An exception that ended the process: the last line of its log.
_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?\s*\Z", re.MULTILINE)

#: The exit status of a command that was called in a wrong way.
_WRONG_CALL: Final = 2

Moment = Callable[[Sequence[Hit]], bool]


class Crawl:
    """A running crawl. As a context manager it is killed at the end of the block."""

    def __init__(
        self,
        web: Web,
        command: list[str],
        folder: Path,
        environment: dict[str, str],
        launcher: Launcher = subprocess.Popen,
    ) -> None:
        self.folder = folder  #: of this run: its items, stdout and stderr
        self.command = command
        self._web = web
        self._started = time.monotonic()
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            self._process = launcher(
                command, cwd=folder.parent, env=environment, stdout=out, stderr=err
            )
        self.pid = self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.poll() is None

    def wait(self, timeout: float = 600.0) -> CrawlResult:
        """Wait for the end; after `timeout` seconds kill the crawl and raise TimeoutError.

        Raises RuntimeError if the process ended with a traceback before the crawl began, as for a
        spider that is not there.
        """
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            tail = self.kill().stderr[-_TAIL:]
            raise TimeoutError(
                f"the crawl was killed after {timeout} s; its log:\n{tail}"
            ) from None
        result = self._result()
        is_error = result.exit_code == 1 and _ERROR.search(result.stderr)
        if is_error or result.exit_code == _WRONG_CALL:
            raise RuntimeError(f"the crawl did not start; its log:\n{result.stderr[-_TAIL:]}")
        return result

    def kill(self) -> CrawlResult:
        """End the crawl at once (SIGKILL), if it has not ended, and return its result so far."""
        self._process.kill()
        self._process.wait()
        return self._result()

    def terminate(self) -> None:
        """Send SIGTERM, as Scrapyd's cancel does; call `wait` after it."""
        self._process.terminate()

    def kill_when(self, moment: Moment, timeout: float = 600.0) -> CrawlResult:
        """Kill the crawl once `moment` is true for its log; else wait for its end."""
        deadline = time.monotonic() + timeout
        while self.running and time.monotonic() < deadline:
            if self._web.wait_for(lambda log: moment(self._own(log)), _POLL_SECONDS):
                return self.kill()
        return self.wait(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _own(self, log: Iterable[Hit]) -> list[Hit]:
        return [hit for hit in log if hit.started >= self._started]

    def _result(self) -> CrawlResult:
        stderr = _text(self.folder / "stderr")
        # The unfinished exchanges of a killed crawl end when the web sees its sockets close.
        self._web.wait_for(lambda log: all(math.isfinite(hit.ended) for hit in log), 10.0)
        return CrawlResult(
            exit_code=self._process.wait(),
            stdout=_text(self.folder / "stdout"),
            stderr=stderr,
            items=read_items(self.folder / "items.jsonl"),
            stats=read_stats(stderr),
            log=self._own(self._web.log),
            connections=[each for each in self._web.connections if each.opened >= self._started],
            seconds=time.monotonic() - self._started,
            folder=self.folder,
        )


def start_crawl(
    web: Web,
    spider: str = "feeds",
    *,
    folder: Path,
    sources: Iterable[SourceLike] | Path | None = None,
    settings: Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    launcher: Launcher = subprocess.Popen,
) -> Crawl:
    """Start `scrapy crawl` and return at once.

    `project` is the folder of scrapy.cfg (default: looked for from the current folder upward).
    Unless `settings` has others, the state is `folder`/walsh.sqlite3, with an empty list as the
    published blocklist. The stats are dumped into the log, where `CrawlResult.stats` comes from.
    `launcher` starts the process: `subprocess.Popen`, or a function with the same arguments.
    """
    root = find_project(project or Path.cwd())
    folder.mkdir(parents=True, exist_ok=True)
    run = Path(tempfile.mkdtemp(prefix="run-", dir=folder.resolve()))
    given = settings_of(run, sources) | dict(settings or {})
    command = [sys.executable, "-m", "scrapy", "crawl", spider, "-O", str(run / "items.jsonl")]
    command += [part for name, value in given.items() for part in ("-s", f"{name}={value}")]
    for name, value in (arguments or {}).items():
        command += ["-a", f"{name}={value}"]
    if "WALSH_BLOCKLIST_URL" not in given:
        copy_new_state(str(given["WALSH_STATE_URL"]))
        keep_empty_blocklist(str(given["WALSH_STATE_URL"]))
    given_environment = join_environments(environment_of(root), web.environment) | dict(
        environment or {}
    )
    return Crawl(web, command, run, given_environment, launcher)


class CrawlOptions(TypedDict, total=False):
    """The arguments that `run_crawl` shares with `start_crawl`."""

    folder: Required[Path]
    sources: Iterable[SourceLike] | Path | None
    settings: Mapping[str, object] | None
    arguments: Mapping[str, object] | None
    project: Path | None
    environment: Mapping[str, str] | None
    launcher: Launcher


def run_crawl(
    web: Web,
    spider: str = "feeds",
    *,
    timeout: float = 600.0,
    kill_when: Moment | None = None,
    **options: Unpack[CrawlOptions],
) -> CrawlResult:
    """Run `scrapy crawl` to its end, or kill it (SIGKILL) once `kill_when` is true for its log.

    Raises TimeoutError, and RuntimeError if there is no such spider.
    """
    with start_crawl(web, spider, **options) as crawl:
        return crawl.kill_when(kill_when, timeout) if kill_when else crawl.wait(timeout)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
