"""One call of the command under test: its files and variables, its limit of time, its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import Run
from walsh_scrapy.testing.directweb import SECOND
from walsh_scrapy.testing.hit import DEFAULT_PORTS
from walsh_scrapy.testing.site import Raw, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from walsh_scrapy.testing.hit import ConnectionRecord, Hit
    from walsh_scrapy.testing.site import Page, Site

_NAME: Final = re.compile(r"(?:(https?)://)?((?:[a-z0-9-]+\.)+example)(:8080)?(?![\w.-])")
#: The port of a site that has another one, with names.
_OTHER_PORT: Final = 8080
#: The address of the first host.
_FIRST: Final = IPv4Address("127.2.0.1")


class Places:
    """Translates between the names of scenarios and addresses; without `ports` names stay."""

    def __init__(self, names: Iterable[str], ports: Mapping[str, int] | None = None) -> None:
        self._ports = dict(ports or {})
        given = dict.fromkeys(names) if self._ports else {}
        self._addresses = {name: str(_FIRST + place) for place, name in enumerate(given)}
        self._names = {address: name for name, address in self._addresses.items()}
        literals = "|".join(re.escape(address) for address in self._names)
        self._address = re.compile(rf"({literals})(?::(\d+))?(?![\d.])") if literals else None

    def text(self, text: str) -> str:
        """Return a text with addresses in the place of names."""
        return _NAME.sub(self._placed, text)

    def site(self, site: Site) -> Site:
        """Return a site at its address."""
        pages = {path: self._page(page) for path, page in site.pages.items()}
        robots = None if site.robots is None else self._page(site.robots)
        return replace(site, name=self._name(site), pages=pages, robots=robots)

    def hit(self, hit: Hit) -> Hit:
        """Return a request as if it had been made by name."""
        name = self._names.get(hit.host)
        if name is None:
            return hit
        headers = tuple((key, self._named(value)) for key, value in hit.headers)
        answer = tuple((key, self._named(value)) for key, value in hit.answer)
        is_other = hit.port == self._ports[SECOND]
        port = _OTHER_PORT if is_other else DEFAULT_PORTS[hit.scheme]
        return replace(hit, host=name, port=port, headers=headers, answer=answer)

    def connection(self, record: ConnectionRecord) -> ConnectionRecord:
        """Return a connection as if it had been made by name."""
        return replace(record, host=self._names.get(record.host, record.host))

    def _placed(self, found: re.Match[str]) -> str:
        scheme, name, port = found.groups()
        address = self._addresses.get(name)
        if address is None:
            return found[0]
        place = self._ports[SECOND if port else scheme] if scheme else ""
        return f"{scheme}://{address}:{place}" if scheme else address

    def _name(self, site: Site) -> str:
        """Return the address of a site, with the port to which it is limited, if it is."""
        host, colon, _ = site.name.partition(":")
        address = self._addresses.get(host)
        if address is None:
            return site.name
        return f"{address}:{self._ports[SECOND]}" if colon else address

    def _named(self, text: str) -> str:
        if self._address is None:
            return text
        return self._address.sub(self._name_of, text)

    def _name_of(self, found: re.Match[str]) -> str:
        is_other = found[2] == str(self._ports[SECOND])
        return f"{self._names[found[1]]}:{_OTHER_PORT}" if is_other else self._names[found[1]]

    def _page(self, page: Page) -> Page:
        match page:
            case Reply():
                body = page.body
                placed = self.text(body) if isinstance(body, str) else body
                headers = [(key, self.text(value)) for key, value in _pairs(page)]
                return replace(page, body=placed, headers=headers)
            case str():
                return self.text(page)
            case Raw() | bytes():
                return page
        if callable(page):
            return lambda hit: self._page(page(hit))
        return [self._page(each) for each in page]


def _pairs(reply: Reply) -> list[tuple[str, str]]:
    headers = reply.headers
    return list(headers.items() if hasattr(headers, "items") else headers)


#: Seconds that each run may take. All together are five minutes.
LONGEST: Final = {
    Run.FIRST: 165.0,
    Run.AGAIN: 25.0,
    Run.FORCED: 45.0,
    Run.KILLED: 15.0,
    Run.RESTARTED: 50.0,
}
_POLL_SECONDS: Final = 0.05
_GRACE_SECONDS: Final = 2.0
#: Bytes that are kept of the end of the command's output.
_TAIL: Final = 4000
_SUPERVISOR: Final = Path(__file__).with_name("processes.py")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
#: The variables that name the CA to trust: OpenSSL, requests, curl, Node.js.
_CA_VARIABLES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a command, as placeholders such as `{seeds}` and as variables.

    `seeds` and `pages` are files with one URL per line. `folder` is empty at first and the same in
    all runs, for the files of a crawler. `key` is a private key to sign requests with. `proxy` is
    empty where hosts are reached without one.
    """

    seeds: Path
    pages: Path
    folder: Path
    ca: Path
    key: Path
    blocklist: str
    proxy: str

    @property
    def words(self) -> dict[str, str]:
        """The value of each placeholder."""
        return {name: str(value) for name, value in asdict(self).items()}

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command with its placeholders filled in; other braces stay."""
        filled = list(command)
        for name, value in self.words.items():
            filled = [word.replace(f"{{{name}}}", value) for word in filled]
        return filled

    def environment(self, run: Run) -> dict[str, str]:
        """Return the caller's environment with the way to the web, and no other proxy."""
        kept = {k: v for k, v in os.environ.items() if k.lower() not in _PROXIES}
        ours = {f"CONFORMANCE_{name.upper()}": value for name, value in self.words.items()}
        ours["CONFORMANCE_RUN"] = run.value
        ours |= dict.fromkeys(_CA_VARIABLES, str(self.ca))
        if run is not Run.AGAIN:
            ours["CONFORMANCE_FORCE"] = "1"
        if self.proxy:
            proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")
            ours |= dict.fromkeys(proxies, self.proxy)
        return kept | ours


@dataclass(frozen=True, slots=True)
class CallOfRun:
    """One call of the command: its seconds, its exit status, whether its time was over."""

    run: str
    seconds: float
    exit_status: int  #: negative: the signal that ended it
    cut: bool
    requests: int = 0
    daemons: int = 0  #: processes that had left it, and were ended with it


class Output:
    """The output of the command in all its calls: only its end is kept."""

    def __init__(self) -> None:
        self._tail = b""

    def read(self, stream: IO[bytes]) -> None:
        """Read a stream to its end."""
        while written := stream.read1():  # type: ignore[attr-defined]
            self._tail = (self._tail + written)[-_TAIL:]

    @property
    def tail(self) -> str:
        """The end, as text."""
        return self._tail.decode("utf-8", "replace")


def call(
    run: Run,
    command: Sequence[str],
    environment: Mapping[str, str],
    output: Output,
    kill_when: Callable[[], bool],
    patience: float = 1.0,
) -> CallOfRun:
    """Run a command to its end, to its limit in seconds, or to SIGKILL once `kill_when` is true.

    `patience` stretches the limit. Processes that the command has started are ended with it
    (`processes`). Raises OSError if it cannot be started.
    """
    began = time.monotonic()
    told, tells = os.pipe()
    with os.fdopen(told, "rb") as report:
        try:
            process = subprocess.Popen(  # noqa: S603 - running it is our purpose
                [sys.executable, "-I", str(_SUPERVISOR), str(tells), *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[tells],
            )
        finally:
            os.close(tells)
        with process:
            reader = Thread(target=output.read, args=[process.stdout], daemon=True)
            reader.start()
            cut = False
            try:
                while process.poll() is None:
                    if kill_when():
                        break
                    if time.monotonic() - began > LONGEST[run] * patience:
                        cut = True
                        process.terminate()
                        _wait(process, _GRACE_SECONDS * patience)
                        break
                    _wait(process, _POLL_SECONDS)
            finally:
                process.send_signal(signal.SIGUSR1)
                process.wait()
                reader.join(_GRACE_SECONDS)
        ended = json.loads(report.read())
    if "error" in ended:
        raise OSError(None, ended["error"])
    seconds = time.monotonic() - began
    return CallOfRun(run.value, seconds, ended["status"], cut, daemons=ended["daemons"])


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
