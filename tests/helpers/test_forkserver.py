"""A child of the fork server behaves like `python -m`, except that it starts faster."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.helpers.forkserver import ForkServer

pytestmark = pytest.mark.crawl

TELL = """
import json, os, random, signal, sys, time

def told(handler):
    return getattr(handler, "__name__", str(handler))

print(json.dumps({
    "name": __name__,
    "arguments": sys.argv[1:],
    "cwd": os.getcwd(),
    "environment": dict(os.environ),
    "path": sys.path,
    "modules": sorted(sys.modules),
    "random": random.random(),
    "zone": time.tzname,
    "encodings": [(each.encoding, each.errors) for each in (sys.stdin, sys.stdout, sys.stderr)],
    "given": sys.stdin.read(),
    "handlers": {str(each): told(signal.getsignal(each)) for each in signal.valid_signals()},
    "fds": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None,
    "process": os.getpid(),
}))
"""
ENDS = """
import atexit, sys
atexit.register(lambda: print("at exit"))
print("said")
print("warned", file=sys.stderr)
how = sys.argv[1]
if how == "raise":
    raise ValueError("raised")
sys.exit(how if not how.isdigit() else int(how))
"""
STAYS = """
import signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def warm(crawl_launcher):
    assert isinstance(crawl_launcher, ForkServer)
    return crawl_launcher


@pytest.fixture
def folder(tmp_path):
    for name, text in {"tell": TELL, "ends": ENDS, "stays": STAYS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture
def run(folder):
    """Run `python -m ...` by a launcher; return exit status, stdout and stderr."""

    def run(launch, *arguments, **environment):
        command = [sys.executable, "-m", *arguments]
        streams = [(folder / name) for name in ("in", "out", "err")]
        streams[0].write_text("given")
        with (
            streams[0].open("rb") as given,
            streams[1].open("wb") as out,
            streams[2].open("wb") as err,
        ):
            process = launch(
                command,
                cwd=folder,
                env=os.environ | environment,
                stdin=given,
                stdout=out,
                stderr=err,
            )
            status = process.wait(300)
        assert process.returncode == process.poll() == status
        return status, *(stream.read_text() for stream in streams[1:])

    return run


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONPATH": "/nowhere", "TZ": "Asia/Kathmandu"},
        {"PYTHONPATH": "", "PYTHONIOENCODING": "latin-1:replace", "PYTHONUNBUFFERED": "1"},
        {"PYTHONIOENCODING": "ascii", "NEW": "ü"},
    ],
)
def test_a_child_finds_the_same_as_an_ordinary_process(warm, run, environment):
    told, wanted = (
        json.loads(run(launch, "tell", "-x", "two words", **environment)[1])
        for launch in (warm, subprocess.Popen)
    )
    for different in ("random", "process", "modules"):
        told.pop(different), wanted.pop(different)
    assert told == wanted


def test_a_child_has_imported_scrapy_but_no_reactor_and_no_pytest(warm, run, pytestconfig):
    told = run(warm, "tell", PYTHONPATH=str(pytestconfig.rootpath))[1]
    modules = set(json.loads(told)["modules"])
    assert {"scrapy.cmdline", "walsh_scrapy.addon"} <= modules
    unwanted = {"twisted.internet.reactor", "pytest", "hypothesis", "walsh_scrapy.settings"}
    assert not modules & unwanted


@pytest.mark.parametrize("how", ["0", "3", "a sentence", "raise"])
def test_a_child_ends_as_an_ordinary_process(warm, run, how):
    (status, said, warned), wanted = (run(each, "ends", how) for each in (warm, subprocess.Popen))
    assert (status, said) == wanted[:2]
    assert warned.splitlines()[-1] == wanted[2].splitlines()[-1]


def started(launch, folder, *arguments):
    """Start a process that keeps running; return it once it is ready."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "stays", *arguments]
    process = launch(command, cwd=folder, env=os.environ, stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.readline() == "ready\n"
    return process


def test_signals_reach_a_child_and_are_its_exit_status(warm, folder):
    process, stubborn = started(warm, folder), started(warm, folder, "stubborn")
    for each in (process, stubborn):
        assert each.poll() is None
        each.terminate()
    assert process.wait(300) == -signal.SIGTERM
    with pytest.raises(subprocess.TimeoutExpired):
        stubborn.wait(0.01)
    stubborn.kill()
    assert stubborn.wait() == -signal.SIGKILL
    stubborn.kill()  # it has ended, so no process gets the signal
    assert stubborn.poll() == -signal.SIGKILL


def test_children_end_with_who_started_them_and_with_the_server(folder):
    with ForkServer() as server:
        process = started(server, folder)
        with ForkServer(server.address) as guest:
            of_guest = started(guest, folder)
        assert of_guest.wait() == -signal.SIGKILL
        assert process.poll() is None
        guest = ForkServer(server.address)
        of_guest = started(guest, folder)
    assert {process.wait(), of_guest.wait()} == {-signal.SIGKILL}
    guest.close()


def test_a_server_that_nobody_used_ends_too():
    ForkServer().close()


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        ([sys.executable, "-c", "print('said')"], {}),
        ([sys.executable, "-m", "ends", "0"], {"PYTHONUTF8": "1"}),
    ],
)
def test_other_commands_are_started_without_a_fork(warm, folder, command, environment):
    process = warm(command, cwd=folder, env=os.environ | environment, stdout=subprocess.DEVNULL)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(300) == 0


def test_streams_may_be_shared_or_a_terminal_or_nowhere(warm, folder):
    def end(**streams):
        command = [sys.executable, "-m", "ends", "0"]
        return warm(command, cwd=folder, env=os.environ, **streams).wait(300)

    both = folder / "both"
    with both.open("wb") as out:
        assert end(stdout=out, stderr=subprocess.STDOUT) == 0
    assert sorted(both.read_text().splitlines()) == ["at exit", "said", "warned"]
    assert end(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    master, slave = pty.openpty()
    assert end(stdout=slave, stderr=subprocess.DEVNULL) == 0
    os.close(slave)
    with os.fdopen(master, "rb", buffering=0) as screen:
        assert b"said" in screen.read(1000)
