"""Runs the real `scrapy crawl` in a separate process, against a test web.

    result = run_crawl(web, sources=["http://blog.example/feed.xml"], folder=tmp_path)
    assert result.exit_code == 0

Runs in the same folder share their state. The environment of the process leads all its requests to
the web, so none of them leaves this machine.
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
from walsh_scrapy.state.evidence import hash_of
from walsh_scrapy.state.records import BlocklistCopy
from walsh_scrapy.testing.hit import ConnectionRecord, Hit
from walsh_scrapy.testing.web import Web

#: A source: its URL, or the fields of a `[[source]]` table (url, kind, name, tags, every, delay).
SourceLike = str | Mapping[str, str | float | list[str]]


def write_sources(path: Path, sources: Iterable[SourceLike]) -> Path:
    """Write a sources file and return its path: a list of URLs if it ends in .txt, else TOML."""
    entries = [{"url": source} if isinstance(source, str) else source for source in sources]
    if path.suffix == ".txt":
        text = "".join(f"{entry['url']}\n" for entry in entries)
    else:
        text = "\n".join(_table(entry) for entry in entries)
    path.write_text(text, encoding="utf-8")
    return path


def _table(entry: Mapping[str, str | float | list[str]]) -> str:
    # Valid TOML, because `ensure_ascii=False` keeps JSON from writing surrogate pairs.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join(["[[source]]", *lines, ""])


_EMPTY: Final = b'{"contract": "walsh-research-blocklist/v1", "refresh": "P7D", "blocked": []}'


def keep_blocklist(state: State, url: str, document: bytes, requested_at: float) -> None:
    """Store a document in the state as the blocklist that was fetched from `url` at that time."""
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
    """Store an empty blocklist, as if it had been fetched from its published URL.

    `now` is the moment of that fetch in seconds since the epoch (default: the present moment). A
    state that cannot be opened is left alone.
    """
    with suppress(StateError, UnicodeError):
        state = State(state_url)
        try:
            requested_at = time.time() if now is None else now
            keep_blocklist(state, BLOCKLIST_URL, _EMPTY, requested_at)
        finally:
            state.close()


def find_project(start: Path) -> Path:
    """Return the nearest folder with a scrapy.cfg, from `start` upward.

    Raises FileNotFoundError if there is none.
    """
    here = start.resolve()
    for folder in (here, *here.parents):
        if (folder / "scrapy.cfg").is_file():
            return folder
    raise FileNotFoundError(f"no scrapy.cfg in {here} or above: pass project=, the folder of one")


def settings_of(run: Path, sources: Iterable[SourceLike] | Path | None) -> dict[str, object]:
    """Return the settings of a crawl in this folder; its state is stored in the parent folder."""
    state = run.parent / "walsh.sqlite3"
    settings: dict[str, object] = {
        "WALSH_STATE_URL": f"sqlite:///{state}",
        "WALSH_BLOCKLIST_SCHEMA_URL": "",
        "STATS_DUMP": True,
    }
    if isinstance(sources, Path):
        settings["WALSH_SOURCES"] = sources.resolve()
    elif sources is not None:
        settings["WALSH_SOURCES"] = write_sources(run / "sources.toml", sources)
    return settings


def environment_of(project: Path) -> dict[str, str]:
    """Return the environment of a process that uses the Scrapy settings of this project."""
    config = ConfigParser()
    config.read(project / "scrapy.cfg", encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCRAPY_")}
    environment["SCRAPY_SETTINGS_MODULE"] = config.get("settings", "default")
    environment["PYTHONUNBUFFERED"] = "1"
    return join_environments(environment, {"PYTHONPATH": str(project)})


def join_environments(environment: dict[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return both environments merged; PYTHONPATH has the folders of both, `extra` first."""
    paths = [variables.get("PYTHONPATH") for variables in (extra, environment)]
    path = os.pathsep.join(path for path in paths if path)
    return environment | dict(extra) | {"PYTHONPATH": path}


class Process(Protocol):
    """A running process: the part of `subprocess.Popen` that is needed here."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None until `poll` or `wait` noticed the end."""

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise subprocess.TimeoutExpired after `timeout` seconds."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def terminate(self) -> None:
        """Send SIGTERM."""


#: Starts a process: `subprocess.Popen`, or a function that takes the command, and as keywords
#: `cwd`, `env`, `stdin`, `stdout` and `stderr`.
Launcher = Callable[..., Process]

_STATS: Final = re.compile(r"Dumping Scrapy stats:\n(\{.*?\})\s*$", re.DOTALL | re.MULTILINE)
_DATETIME: Final = re.compile(r"datetime\.datetime\(([^()]*)\)")

#: An item or the stats of a crawl.
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """What a crawl did, after its process has ended."""

    exit_code: int  #: negative for the signal that ended the process
    stdout: str
    stderr: str  #: Scrapy's log
    items: list[Record] = field(default_factory=list)
    stats: Record = field(default_factory=dict)  #: empty if the log has no dump of them
    log: list[Hit] = field(default_factory=list)  #: the requests to the web since the start
    connections: list[ConnectionRecord] = field(default_factory=list)  #: those since the start
    seconds: float = 0.0  #: the duration of the process
    folder: Path = Path()  #: the folder of this run


def read_items(path: Path) -> list[Record]:
    """Read exported JSON lines, except a last line that was cut short when the crawl was killed."""
    if not path.exists():
        return []
    # Not splitlines(), which would split a JSON string at U+2028.
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.strip()]


def read_stats(stderr: str) -> Record:
    """Read the stats that Scrapy dumps into its log; dates and times are returned as text."""
    dumps = _STATS.findall(stderr)
    if not dumps:
        return {}
    try:
        stats: Record = ast.literal_eval(_DATETIME.sub(r"'\1'", dumps[-1]))
    except (SyntaxError, ValueError):
        return {}  # a stat of a type that cannot be read back
    return stats


_POLL_SECONDS: Final = 0.02
_TAIL: Final = 4000
#: The last line of the log of a process that an exception ended.
_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?\s*\Z", re.MULTILINE)

#: The exit status of a command with wrong arguments.
_WRONG_CALL: Final = 2

Moment = Callable[[Sequence[Hit]], bool]


class Crawl:
    """A running crawl. As a context manager it kills the process at the end of the block."""

    def __init__(
        self,
        web: Web,
        command: list[str],
        folder: Path,
        environment: dict[str, str],
        launcher: Launcher = subprocess.Popen,
    ) -> None:
        self.folder = folder  #: the folder of this run, with its items, stdout and stderr
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
        """Whether the process is still running."""
        return self._process.poll() is None

    def wait(self, timeout: float = 600.0) -> CrawlResult:
        """Wait for the end, and return the result.

        After `timeout` seconds the crawl is killed and TimeoutError raised. Raises RuntimeError if
        the process failed before the crawl began, for example because there is no such spider.
        """
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            tail = self.kill().stderr[-_TAIL:]
            raise TimeoutError(
                f"the crawl was killed after {timeout} s; its log ends with:\n{tail}"
            ) from None
        result = self._result()
        is_error = result.exit_code == 1 and _ERROR.search(result.stderr)
        if is_error or result.exit_code == _WRONG_CALL:
            raise RuntimeError(f"the crawl did not start; its log:\n{result.stderr[-_TAIL:]}")
        return result

    def kill(self) -> CrawlResult:
        """Kill the crawl (SIGKILL) unless it has ended, and return its result so far."""
        self._process.kill()
        self._process.wait()
        return self._result()

    def terminate(self) -> None:
        """Send SIGTERM, as Scrapyd does to cancel a job. Call `wait` afterwards."""
        self._process.terminate()

    def kill_when(self, moment: Moment, timeout: float = 600.0) -> CrawlResult:
        """Kill the crawl as soon as `moment` is true for its log; otherwise wait for its end."""
        deadline = time.monotonic() + timeout
        while self.running and time.monotonic() < deadline:
            if self._web.wait_for(lambda log: moment(self._own_hits(log)), _POLL_SECONDS):
                return self.kill()
        return self.wait(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _own_hits(self, log: Iterable[Hit]) -> list[Hit]:
        return [hit for hit in log if hit.started >= self._started]

    def _result(self) -> CrawlResult:
        stderr = _text(self.folder / "stderr")
        # After a kill, wait until the web has noticed that the crawl's sockets are closed.
        self._web.wait_for(lambda log: all(math.isfinite(hit.ended) for hit in log), 10.0)
        return CrawlResult(
            exit_code=self._process.wait(),
            stdout=_text(self.folder / "stdout"),
            stderr=stderr,
            items=read_items(self.folder / "items.jsonl"),
            stats=read_stats(stderr),
            log=self._own_hits(self._web.log),
            connections=[
                record for record in self._web.connections if record.opened >= self._started
            ],
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

    `folder` gets the files of the run. `settings` and `arguments` are passed as `-s` and `-a`,
    `sources` as the sources file. `project` is the folder with scrapy.cfg (default: the current
    folder or one above it). `environment` adds variables. `launcher` starts the process:
    `subprocess.Popen`, or a function with the same arguments.

    Unless `settings` says otherwise, the state is `folder`/walsh.sqlite3, with an empty blocklist,
    and the stats are dumped into the log, from which `CrawlResult.stats` is read.
    """
    root = find_project(project or Path.cwd())
    folder.mkdir(parents=True, exist_ok=True)
    run = Path(tempfile.mkdtemp(prefix="run-", dir=folder.resolve()))
    crawl_settings = settings_of(run, sources) | dict(settings or {})
    command = [sys.executable, "-m", "scrapy", "crawl", spider, "-O", str(run / "items.jsonl")]
    command += [
        part for name, value in crawl_settings.items() for part in ("-s", f"{name}={value}")
    ]
    for name, value in (arguments or {}).items():
        command += ["-a", f"{name}={value}"]
    if "WALSH_BLOCKLIST_URL" not in crawl_settings:
        copy_new_state(str(crawl_settings["WALSH_STATE_URL"]))
        keep_empty_blocklist(str(crawl_settings["WALSH_STATE_URL"]))
    variables = join_environments(environment_of(root), web.environment) | dict(environment or {})
    return Crawl(web, command, run, variables, launcher)


class CrawlOptions(TypedDict, total=False):
    """The arguments that `run_crawl` passes to `start_crawl`, which describes them."""

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
    """Run `scrapy crawl` to its end, and return what it did.

    It is killed (SIGKILL) as soon as `kill_when` is true for the log of its requests. The other
    arguments are passed to `start_crawl`. Raises TimeoutError if the crawl takes longer than
    `timeout` seconds, and RuntimeError if it does not start, for example because there is no such
    spider.
    """
    with start_crawl(web, spider, **options) as crawl:
        return crawl.kill_when(kill_when, timeout) if kill_when else crawl.wait(timeout)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
