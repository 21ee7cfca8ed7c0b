"""Calls the command under test, with its input and its time limit."""

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

from walsh_scrapy.testing.conformance.scenario import Run, unique_of
from walsh_scrapy.testing.directweb import SECOND
from walsh_scrapy.testing.hit import DEFAULT_PORTS
from walsh_scrapy.testing.site import Raw, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from walsh_scrapy.testing.hit import ConnectionRecord, Hit
    from walsh_scrapy.testing.site import Page, Site

_NAME: Final = re.compile(r"(?:(https?)://)?((?:[a-z0-9-]+\.)+example)(:8080)?(?![\w.-])")
#: The port in the name of a site that does not use the default port.
_OTHER_PORT: Final = 8080
#: The address of the first host.
_FIRST: Final = IPv4Address("127.2.0.1")


class Places:
    """Translates host names of scenarios to addresses and back.

    Without `ports` the crawler uses a proxy, and nothing is translated.
    """

    def __init__(self, names: Iterable[str], ports: Mapping[str, int] | None = None) -> None:
        self._ports = dict(ports or {})
        unique_names = unique_of(names) if self._ports else []
        self._addresses = {name: str(_FIRST + place) for place, name in enumerate(unique_names)}
        self._names = {address: name for name, address in self._addresses.items()}
        literals = "|".join(re.escape(address) for address in self._names)
        self._address = re.compile(rf"({literals})(?::(\d+))?(?![\d.])") if literals else None

    def text(self, text: str) -> str:
        """Return a text in which addresses replace names."""
        return _NAME.sub(self._address_for, text)

    def site(self, site: Site) -> Site:
        """Return a site with its address in the place of its name, in its pages too."""
        pages = {path: self._page(page) for path, page in site.pages.items()}
        robots = None if site.robots is None else self._page(site.robots)
        return replace(site, name=self._name(site), pages=pages, robots=robots)

    def hit(self, hit: Hit) -> Hit:
        """Return a request as if it had been sent to a name."""
        name = self._names.get(hit.host)
        if name is None:
            return hit
        headers = tuple((key, self._with_names(value)) for key, value in hit.headers)
        answer = tuple((key, self._with_names(value)) for key, value in hit.answer)
        is_other = hit.port == self._ports[SECOND]
        port = _OTHER_PORT if is_other else DEFAULT_PORTS[hit.scheme]
        return replace(hit, host=name, port=port, headers=headers, answer=answer)

    def connection(self, record: ConnectionRecord) -> ConnectionRecord:
        """Return a connection as if it had been made to a name."""
        return replace(record, host=self._names.get(record.host, record.host))

    def _address_for(self, match: re.Match[str]) -> str:
        scheme, name, port = match.groups()
        address = self._addresses.get(name)
        if address is None:
            return match[0]
        place = self._ports[SECOND if port else scheme] if scheme else ""
        return f"{scheme}://{address}:{place}" if scheme else address

    def _name(self, site: Site) -> str:
        """Return the address of a site, with its port if it is limited to one."""
        host, colon, _ = site.name.partition(":")
        address = self._addresses.get(host)
        if address is None:
            return site.name
        return f"{address}:{self._ports[SECOND]}" if colon else address

    def _with_names(self, text: str) -> str:
        if self._address is None:
            return text
        return self._address.sub(self._name_of, text)

    def _name_of(self, match: re.Match[str]) -> str:
        is_other = match[2] == str(self._ports[SECOND])
        return f"{self._names[match[1]]}:{_OTHER_PORT}" if is_other else self._names[match[1]]

    def _page(self, page: Page) -> Page:
        match page:
            case Reply():
                body = page.body
                text = self.text(body) if isinstance(body, str) else body
                headers = [(key, self.text(value)) for key, value in _pairs(page)]
                return replace(page, body=text, headers=headers)
            case str():
                return self.text(page)
            case Raw() | bytes():
                return page
        if callable(page):
            return lambda hit: self._page(page(hit))
        return [self._page(item) for item in page]


def _pairs(reply: Reply) -> list[tuple[str, str]]:
    headers = reply.headers
    return list(headers.items() if hasattr(headers, "items") else headers)


#: The time limit of each run. All runs together take at most five minutes.
TIMEOUT_SECONDS: Final = {
    Run.FIRST: 140.0,
    Run.AGAIN: 20.0,
    Run.FORCED: 30.0,
    Run.KILLED: 30.0,
    Run.RESTARTED: 80.0,
}
_POLL_SECONDS: Final = 0.05
_GRACE_SECONDS: Final = 2.0
#: How much of the end of the command's output is kept.
_TAIL_BYTES: Final = 4000
_SUPERVISOR: Final = Path(__file__).with_name("processes.py")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
#: The variables that name the CA to trust, for OpenSSL, requests, curl and Node.js.
_CA_VARIABLES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)


@dataclass(frozen=True, slots=True)
class CrawlerInput:
    """The input of the command: each field is a placeholder such as `{seeds}`, and a variable."""

    seeds: Path  #: a file with the URLs of feeds, one per line
    pages: Path  #: a file with the URLs of sites without a feed, one per line
    folder: Path  #: a folder for the crawler's files, empty at first and the same in all runs
    ca: Path  #: the certificate of the CA to trust
    key: Path  #: a private key to sign requests with
    blocklist: str  #: the URL of the list of opt-outs
    proxy: str  #: the URL of the proxy; empty without a proxy

    @property
    def words(self) -> dict[str, str]:
        """The value of each placeholder."""
        return {name: str(value) for name, value in asdict(self).items()}

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command with its placeholders filled in; other braces are left alone."""
        filled = list(command)
        for name, value in self.words.items():
            filled = [word.replace(f"{{{name}}}", value) for word in filled]
        return filled

    def environment(self, run: Run) -> dict[str, str]:
        """Return the caller's environment without its proxies, with the variables of the test."""
        inherited = {k: v for k, v in os.environ.items() if k.lower() not in _PROXIES}
        variables = {f"CONFORMANCE_{name.upper()}": value for name, value in self.words.items()}
        variables["CONFORMANCE_RUN"] = run.value
        variables |= dict.fromkeys(_CA_VARIABLES, str(self.ca))
        if run is not Run.AGAIN:
            variables["CONFORMANCE_FORCE"] = "1"
        if self.proxy:
            proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY")
            variables |= dict.fromkeys(proxies, self.proxy)
        return inherited | variables


@dataclass(frozen=True, slots=True)
class CallOfRun:
    """How one call of the command ended."""

    run: str
    seconds: float
    exit_status: int  #: negative for the signal that ended it
    cut: bool  #: True if the time limit ended it
    requests: int = 0
    daemons: int = 0  #: processes that the command left running; they were ended too


class Output:
    """Collects the output of all calls of the command, and keeps the end of it."""

    def __init__(self) -> None:
        self._tail = b""

    def read(self, stream: IO[bytes]) -> None:
        """Read a stream to its end."""
        while written := stream.read1():  # type: ignore[attr-defined]
            self._tail = (self._tail + written)[-_TAIL_BYTES:]

    @property
    def tail(self) -> str:
        """The end of the output, as text."""
        return self._tail.decode("utf-8", "replace")


def call(
    run: Run,
    command: Sequence[str],
    environment: Mapping[str, str],
    output: Output,
    kill_when: Callable[[], bool],
    patience: float = 1.0,
) -> CallOfRun:
    """Run the command until it ends, its time limit is over, or `kill_when` is true (SIGKILL).

    `patience` multiplies the time limit. The processes that the command has started end with it
    (see `processes`). Raises OSError if it cannot be started.
    """
    began = time.monotonic()
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as pipe:
        try:
            process = subprocess.Popen(  # noqa: S603 - running it is our purpose
                [sys.executable, "-I", str(_SUPERVISOR), str(write_end), *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[write_end],
            )
        finally:
            os.close(write_end)
        with process:
            reader = Thread(target=output.read, args=[process.stdout], daemon=True)
            reader.start()
            cut = False
            try:
                while process.poll() is None:
                    if kill_when():
                        break
                    if time.monotonic() - began > TIMEOUT_SECONDS[run] * patience:
                        cut = True
                        process.terminate()
                        _wait(process, _GRACE_SECONDS * patience)
                        break
                    _wait(process, _POLL_SECONDS)
            finally:
                process.send_signal(signal.SIGUSR1)
                process.wait()
                reader.join(_GRACE_SECONDS)
        report = json.loads(pipe.read())
    if "error" in report:
        raise OSError(None, report["error"])
    seconds = time.monotonic() - began
    return CallOfRun(run.value, seconds, report["status"], cut, daemons=report["daemons"])


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
