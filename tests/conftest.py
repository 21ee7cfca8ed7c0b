"""What tests of several parts share: our own pytest plugin, and an empty database of each kind."""

import logging
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from tests.helpers import LONGEST
from tests.helpers.forkserver import ForkServer
from walsh_scrapy.testing.simulation import simulate

pytest_plugins = ["walsh_scrapy.testing.plugin"]
# No test is timed: on a busy machine any example may take its time. The gate draws the same
# examples each time; --hypothesis-profile=search draws others.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("search"), derandomize=True)
settings.load_profile("gate")
# Modules and tests are compiled once, and not in each of hundreds of processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: Tests that use one of these run crawls or commands in processes of their own.
PROCESSES = {"crawl", "simulated", "run_scrapy", "crawl_launcher", "installed", "demo"}
SERVER = "postgresql+psycopg://postgres@127.0.0.1:5432/test"


def pytest_xdist_setupnodes():
    """Compile the tests once if they never were, and not in each worker."""
    here = Path(__file__).parent
    if not any(here.glob(f"*/__pycache__/test_*.{sys.implementation.cache_tag}-pytest-*.pyc")):
        collect = ["-m", "pytest", "--collect-only", "--numprocesses=0", str(here)]
        subprocess.run([sys.executable, *collect], stdout=subprocess.DEVNULL, check=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Forget what an earlier test left: Scrapy's project, and the levels of loggers."""
    os.environ.pop("SCRAPY_SETTINGS_MODULE", None)
    logging.getLogger().setLevel(logging.WARNING)
    for name in ("scrapy", "walsh_scrapy", "walsh_scrapy.addon"):  # a command of ours sets them
        logging.getLogger(name).setLevel(logging.NOTSET)


def pytest_collection_modifyitems(items):
    """Mark the tests that crawl, and spread their files among the tests that compute.

    Crawls mostly wait, and each worker begins with a stretch of the list. Tests of one file stay
    together, because they may share fixtures.
    """
    for item in items:
        if item.path.parent.name == "contract" or PROCESSES.intersection(item.fixturenames):
            item.add_marker("crawl")
    of_file = {}
    for item in items:
        of_file.setdefault(item.path, []).append(item)
    crawling, others, spread = [], [], []
    for tests in of_file.values():
        if all(each.get_closest_marker("crawl") for each in tests):
            crawling.append(tests)
        else:
            others += tests
    for number, tests in enumerate(crawling):
        first, last = (len(others) * part // len(crawling) for part in (number, number + 1))
        spread += [*tests, *others[first:last]]
    items[:] = spread or others


@pytest.fixture
def linear():
    """Fail a test that hangs: with what it is given, only quadratic code takes `LONGEST`."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"it takes more than {LONGEST:.0f} s"))
    signal.alarm(int(LONGEST))
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def crawl_launcher():
    """Start crawls and commands from one warm process, which ends with the tests."""
    with ForkServer() as server:
        yield server


@pytest.fixture
def simulated(tmp_path, pytestconfig, crawl_launcher):
    """Return a function that runs crawls in simulated time, their state in tmp_path."""

    def run(*sites, **options):
        given = {"folder": tmp_path / "simulation", "project": pytestconfig.rootpath}
        return simulate(*sites, **given, launcher=crawl_launcher, **options)

    return run


@pytest.fixture
def run_scrapy(crawl_launcher, pytestconfig):
    """Return a function that runs `scrapy ...` to its end, as `subprocess.run` would.

    Its working directory is the project's, unless `cwd` is given; `environment` comes on top of
    ours, `stdin` is a text and `stdout` a descriptor, in whose place nothing is captured. Settings
    stand before the arguments, so an argument may give another value.
    """

    def run(
        name,
        *arguments,
        settings=None,
        cwd=None,
        environment=None,
        stdin="",
        stdout=None,
        encoding="utf-8",
    ):
        options = [f"--set={setting}={value}" for setting, value in (settings or {}).items()]
        command = [sys.executable, "-m", "scrapy", name, *options, *map(str, arguments)]
        with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as error:
            given.write(stdin.encode())
            given.seek(0)
            process = crawl_launcher(
                command,
                cwd=cwd or pytestconfig.rootpath,
                env=os.environ | (environment or {}),
                stdin=given,
                stdout=out if stdout is None else stdout,
                stderr=error,
            )
            try:
                status = process.wait(LONGEST)
            finally:
                process.kill()
            told = [_told(each, encoding) for each in (out, error)]
        return CompletedProcess(command, status, *told)

    return run


@pytest.fixture
def on_state(tmp_path, run_scrapy):
    """Return a function that runs a command on the state that the crawls of a test share."""
    state = f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}"

    def run(*arguments, settings=None, **options):
        given = {"WALSH_STATE_URL": state, "WALSH_SOURCES": tmp_path / "sources.txt"}
        return run_scrapy(*arguments, settings=given | (settings or {}), **options)

    return run


@pytest.fixture
def again(crawl):
    """Run once more over the same state, although nothing is due."""

    def run(web, spider="feeds", **options):
        return crawl(web, spider, **options, arguments={"force": "1"})

    return run


def _told(file, encoding):
    file.seek(0)
    return file.read().decode(encoding) if encoding else file.read()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'state.sqlite3'}"
    return request.getfixturevalue("postgresql_url")


@pytest.fixture
def postgresql_url():
    """The URL of an empty database on the PostgreSQL of this machine."""
    name = f"walsh_{uuid.uuid4().hex}"
    server = create_engine(
        SERVER, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 60}
    )
    try:
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
    except OperationalError:
        server.dispose()
        pytest.skip("there is no PostgreSQL at 127.0.0.1:5432")
    yield SERVER.rsplit("/", 1)[0] + f"/{name}"
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()
