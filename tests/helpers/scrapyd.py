"""A real Scrapyd in a process of its own, with the project deployed to it as an egg.

    with Scrapyd(folder, web) as scrapyd:
        scrapyd.deploy(egg)
        scrapyd.schedule("feeds", "morning", settings={"WALSH_STATE_URL": url}, sources=file)
        scrapyd.wait()

Its jobs know nothing of this checkout: all they have of the project is the egg.
"""

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

from walsh_scrapy.testing.web import LoopbackWeb

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
    """Listens on a port of its own once it is entered; ends with its block, jobs included.

    `eggs` is the folder of what was deployed to another one, and so need not be built again.
    """

    def __init__(self, folder: Path, web: LoopbackWeb, eggs: Path | None = None) -> None:
        self.folder = folder
        self._eggs = eggs
        self._web = web
        self._port = _free_port()  # Scrapyd takes no 0 for "any"
        self.url = f"http://127.0.0.1:{self._port}/"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        if self._eggs:
            shutil.copytree(self._eggs, self.folder / "eggs")
        (self.folder / "scrapyd.conf").write_text(CONFIG.format(port=self._port))
        with (self.folder / "scrapyd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scrapyd"],
                cwd=self.folder,
                env=_environment() | self._web.environment,
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
        return (self.folder / "logs" / PROJECT / spider / f"{job}.log").read_text()

    def items(self, job: str, spider: str = "feeds") -> list[dict[str, Any]]:
        lines = (self.folder / "items" / PROJECT / spider / f"{job}.jl").read_text()
        return [json.loads(line) for line in lines.splitlines()]

    def call(self, service: str, *more: tuple[str, str], **fields: object) -> dict[str, Any]:
        """Ask a service of the API; fail unless its status is "ok"."""
        body = urlencode([*more, *({"project": PROJECT} | fields).items()])
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
