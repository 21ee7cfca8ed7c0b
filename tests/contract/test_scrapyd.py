"""The project on Scrapyd: an egg that works, and jobs that pace each other."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import pytest

from tests.helpers import ROOT
from tests.helpers.pages import FAILED_JOBS
from tests.helpers.sites import AGENT, feeds, paths, site
from walsh_scrapy.state import State
from walsh_scrapy.testing.crawl import keep_empty_blocklist, write_sources
from walsh_scrapy.testing.web import LoopbackWeb
from walsh_scrapy.tools.standalone import write_project

#: A killed job's lease that runs out while a test waits.
SETTINGS = {"WALSH_BLOCKLIST_SCHEMA_URL": "", "DOWNLOAD_TIMEOUT": 10}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def web():
    """The host of the source."""
    with LoopbackWeb(site("blog.example")) as served:
        yield served


@pytest.fixture(scope="module")
def scrapyd(web, pytestconfig, tmp_path_factory):
    """A Scrapyd in front of the web, with the project deployed to it."""
    folder = tmp_path_factory.mktemp("scrapyd")
    with Scrapyd(folder / "scrapyd", web) as running:
        (folder / "checkout").mkdir()
        checkout = build_checkout(pytestconfig.rootpath, folder / "checkout", running.url)
        told = running.deploy(checkout)
        assert '"status": "ok"' in told, told
        yield running


def told_by(line):
    """Run a line of docs/deployment.md in this checkout; return its exit status and its output."""
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_job_with_the_default_state_names_its_file(web, scrapyd, tmp_path):
    """There is no scrapy.cfg beside an egg, so the state is in the folder where Scrapyd started."""
    assert scrapyd.call("listspiders.json")["spiders"] == ["feeds", "llms"]
    sources = write_sources(tmp_path / "sources.toml", ["http://blog.example/feed"])
    state = scrapyd.folder / ".scrapy" / "walsh.sqlite3"
    keep_empty_blocklist(f"sqlite:///{state}")
    scrapyd.schedule("feeds", "bare", SETTINGS, sources=sources)
    scrapyd.wait()
    (warning,) = (line for line in scrapyd.job_log("bare").splitlines() if "WARNING" in line)
    assert f"the state is sqlite:///{state}" in warning
    assert "WALSH_STATE_URL" in warning
    assert len(scrapyd.items("bare")) == 2
    failed, with_reason = (
        line.replace("/srv/scrapyd/", f"{scrapyd.folder}/").replace("my-feeds", PROJECT)
        for line in FAILED_JOBS
    )
    assert told_by(failed) == (0, ""), "no job failed yet"
    scrapyd.schedule("feeds", "wrong", SETTINGS, sources=tmp_path / "none.toml")
    mistyped = SETTINGS | {"WALSH_STATE_URL": "postgresql psycopg://walsh@db.internal/walsh"}
    scrapyd.schedule("feeds", "mistyped", mistyped, sources=sources)
    scrapyd.wait()
    assert "none.toml" in scrapyd.job_log("wrong")
    finished = scrapyd.call("listjobs.json")["finished"]
    assert {job["id"] for job in finished} >= {"bare", "wrong", "mistyped"}, (
        "it tells no difference"
    )
    status, died = told_by(failed)
    assert status == 1
    assert set(re.findall(r"exitstatus=1 .*?job='(\w+)'", died)) == {"wrong", "mistyped"}
    assert {Path(name).stem for name in told_by(with_reason)[1].split()} == {"wrong", "mistyped"}
    with contextlib.closing(State(f"sqlite:///{state}")) as kept:
        assert [run.finish_reason for run in kept.runs.latest(9)] == ["finished"], (
            "those that began"
        )
    assert paths(web.log, "blog.example") == ["blog.example/robots.txt", "blog.example/feed"]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Two versions of a project of `walsh init` on a Scrapyd, and the requests of a job of each."""
    folder = tmp_path_factory.mktemp("own")
    project = folder / "my feeds"
    write_project(project)
    settings = project / "settings.py"
    settings.write_text(settings.read_text() + f"WALSH_USER_AGENT = {AGENT!r}\n")
    (folder / "library").mkdir()
    (folder / "library" / "walsh_scrapy").symlink_to(ROOT / "walsh_scrapy")
    library = {"PYTHONPATH": str(folder / "library")}
    with (
        LoopbackWeb(site("old.example"), site("new.example")) as web,
        Scrapyd(folder / "scrapyd", web, "my_feeds", library) as running,
    ):
        config = project / "scrapy.cfg"
        config.write_text(config.read_text().replace("http://localhost:6800/", running.url))
        requests = []
        for job, names in (("first", ["old"]), ("second", ["old", "new"])):
            write_sources(project / "sources.toml", feeds(*names))
            assert '"status": "ok"' in running.deploy(project)
            web.clear()
            running.schedule("feeds", job, {})
            running.wait()
            requests.append(paths(web.log))
        yield running, requests


def test_a_job_of_a_new_project_crawls_the_sources_in_its_egg(own):
    scrapyd, (requests, _) = own
    assert requests == ["old.example/robots.txt", "old.example/feed"], scrapyd.job_log("first")
    assert len(scrapyd.items("first")) == 2


def test_a_new_version_has_its_own_sources_and_the_old_state(own):
    scrapyd, (_, requests) = own
    assert requests == ["new.example/robots.txt", "new.example/feed"], scrapyd.job_log("second")
    assert "not due yet: 1 source" in scrapyd.job_log("second")


# A real Scrapyd in a process of its own, with the project deployed to it as an egg.
#
# Its jobs know nothing of this checkout: all they have of the project is the egg.

PROJECT = "walsh_scrapy"
CONFIG = """\
[scrapyd]
bind_address = 127.0.0.1
http_port = {port}
poll_interval = 0.2
max_proc = 4
logs_dir = logs
items_dir = items
eggs_dir = eggs
dbs_dir = dbs
"""
#: What of a checkout belongs to the egg, or says how it is built.
PARTS = ("walsh_scrapy", "spiders", "setup.py", "pyproject.toml", "README.md", "LICENSE")
_POLL_SECONDS = 0.1


def build_checkout(project: Path, folder: Path, url: str) -> Path:
    """Copy what is deployed to `folder`, with a scrapy.cfg that names the Scrapyd at `url`."""
    for part in PARTS:
        if (project / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(project / part, folder / part, ignore=ignored)
        else:
            shutil.copy(project / part, folder / part)
    given = (project / "scrapy.cfg").read_text()
    (folder / "scrapy.cfg").write_text(re.sub(r"(?m)^url *=.*", f"url = {url}", given))
    return folder


class Scrapyd:
    """Listens on a port of its own once it is entered; ends with its block, jobs included."""

    def __init__(
        self,
        folder: Path,
        web: LoopbackWeb,
        project: str = PROJECT,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._project = project
        self._environment = web.environment | (environment or {})
        self._port = _free_port()  # Scrapyd takes no 0 for "any"
        self.url = f"http://127.0.0.1:{self._port}/"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        (self.folder / "scrapyd.conf").write_text(CONFIG.format(port=self._port))
        with (self.folder / "scrapyd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scrapyd"],
                cwd=self.folder,
                env=_environment() | self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._until(lambda: "Site starting on" in self.log)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for job in self._jobs("pending") + self._jobs("running"):
                self.cancel(job, signal="KILL")
            self.wait()
        finally:
            self._process.terminate()
            self._process.wait()

    @property
    def log(self) -> str:
        """What Scrapyd itself says."""
        return (self.folder / "scrapyd.log").read_text()

    def deploy(self, checkout: Path) -> str:
        """Run `scrapyd-deploy` in a checkout, and return what it prints."""
        done = subprocess.run(
            [Path(sys.executable).with_name("scrapyd-deploy")],
            cwd=checkout,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def schedule(
        self, spider: str, job: str, settings: dict[str, object], **arguments: object
    ) -> None:
        """Ask for a job, as `curl schedule.json -d spider=... -d setting=NAME=VALUE` does."""
        given = [("setting", f"{name}={value}") for name, value in settings.items()]
        self.call("schedule.json", *given, spider=spider, jobid=job, **arguments)

    def cancel(self, job: str, signal: str) -> None:
        self.call("cancel.json", job=job, signal=signal)

    def wait(self) -> None:
        """Wait until no job is left."""
        self._until(lambda: not (self._jobs("pending") or self._jobs("running")))

    def job_log(self, job: str, spider: str = "feeds") -> str:
        return (self.folder / "logs" / self._project / spider / f"{job}.log").read_text()

    def items(self, job: str, spider: str = "feeds") -> list[dict[str, Any]]:
        lines = (self.folder / "items" / self._project / spider / f"{job}.jl").read_text()
        return [json.loads(line) for line in lines.splitlines()]

    def call(self, service: str, *more: tuple[str, str], **fields: object) -> dict[str, Any]:
        """Ask a service of the API; fail unless its status is "ok"."""
        body = urlencode([*more, *({"project": self._project} | fields).items()])
        connection = HTTPConnection("127.0.0.1", self._port)
        method, path = (
            ("GET", f"/{service}?{body}") if "list" in service else ("POST", f"/{service}")
        )
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, None if method == "GET" else body, headers)
        answer: dict[str, Any] = json.load(connection.getresponse())
        connection.close()
        assert answer["status"] == "ok", answer
        return answer

    def _jobs(self, state: str) -> list[str]:
        return [job["id"] for job in self.call("listjobs.json")[state]]

    def _until(self, condition: Callable[[], bool], timeout: float = 600.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(_POLL_SECONDS)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    """Return ours without what would lead a job to this checkout, or to a proxy."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("SCRAPY") and "proxy" not in name.lower()
    }
