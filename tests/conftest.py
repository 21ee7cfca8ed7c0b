"""What tests of several parts share: our own pytest plugin, and a database of each kind."""

import gc
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

from tests.helpers import HANG_SECONDS
from tests.helpers.forkserver import ForkServer
from tests.helpers.renewed import RenewedDatabase, url_of
from walsh_scrapy.console.commands import COMMANDS
from walsh_scrapy.testing.web import NO_SUFFIX_LIST

pytest_plugins = ["walsh_scrapy.testing.plugin"]
# No test is timed: on a busy machine any example may take its time. The gate draws the same
# examples each time, `make quick` few; --hypothesis-profile=search draws others.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("search"), derandomize=True)
settings.register_profile("quick", settings.get_profile("gate"), max_examples=10)
settings.load_profile("gate")
# Modules and tests are compiled once, and not in each of hundreds of processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A crawl trusts the CA of its web. Those of the machine take a third of the time of a short crawl.
os.environ["SSL_CERT_FILE"] = os.environ["SSL_CERT_DIR"] = os.devnull
# Scrapy's cookies would download the public suffix list, as soon as the fork server imports them.
os.environ |= NO_SUFFIX_LIST
gc.disable()  # until all is collected: nothing of it is garbage, and there are thousands of tests

#: Tests that use one of these run crawls or commands in processes of their own.
PROCESSES = {
    "crawl",
    "simulated",
    "run_python",
    "run_command",
    "crawl_launcher",
    "installed",
    "demo",
}
FORK_SERVER = pytest.StashKey[ForkServer]()


def pytest_xdist_setupnodes(config):
    """Compile the tests once if they never were, and start the fork server of all workers."""
    here = Path(__file__).parent
    if not any(here.glob(f"*/__pycache__/test_*.{sys.implementation.cache_tag}-pytest-*.pyc")):
        collect = ["-m", "pytest", "--collect-only", str(here)]
        subprocess.run([sys.executable, *collect], stdout=subprocess.DEVNULL, check=False)
    config.stash[FORK_SERVER] = ForkServer()
    config.add_cleanup(config.stash[FORK_SERVER].close)


def pytest_configure_node(node):
    """Tell a worker where the fork server is."""
    node.workerinput["fork_server"] = node.config.stash[FORK_SERVER].address


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Forget what an earlier test left: Scrapy's project, levels of loggers, shared documents."""
    os.environ.pop("SCRAPY_SETTINGS_MODULE", None)
    logging.getLogger().setLevel(logging.WARNING)
    for name in ("scrapy", "walsh_scrapy", "walsh_scrapy.addon"):  # a command of ours sets them
        logging.getLogger(name).setLevel(logging.NOTSET)


def pytest_collection_modifyitems(config, items):
    """Mark the tests that crawl and those on PostgreSQL, and let each worker begin with long ones.

    A worker begins with a stretch of the list, and later takes tests from the ends of others. So a
    stretch has first the long tests of a file, then crawls, then what computes. Other tests of one
    file stay together, because they may share fixtures.
    """
    for item in items:
        if item.path.parent.name == "contract" or PROCESSES.intersection(item.fixturenames):
            item.add_marker("crawl")
        if {"encoded", "postgresql_url"} & set(item.fixturenames):
            item.add_marker("postgresql")
    long, crawling, others = {}, [], []
    for item in items:
        if item.get_closest_marker("long"):
            long.setdefault(item.path, []).append(item)
        else:
            (crawling if item.get_closest_marker("crawl") else others).append(item)
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    ordered = []
    for number in range(workers):
        size = (len(items) - len(ordered)) // (workers - number)
        begins = [item for tests in list(long.values())[number::workers] for item in tests]
        share = len(crawling) // (workers - number)
        rest = max(0, size - len(begins) - share)
        ordered += begins + crawling[:share] + others[:rest]
        del crawling[:share], others[:rest]
    items[:] = ordered


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture
def linear():
    """Fail a test that hangs: with what it is given, only quadratic code takes `HANG_SECONDS`."""
    signal.signal(
        signal.SIGALRM, lambda *_: pytest.fail(f"it takes more than {HANG_SECONDS:.0f} s")
    )
    signal.alarm(int(HANG_SECONDS))
    yield
    signal.alarm(0)


# Short names for our own tests. Those of the package have a prefix, because a project may have
# fixtures of these names.


@pytest.fixture
def loopback_web(walsh_loopback_web):
    return walsh_loopback_web


@pytest.fixture
def direct_web(walsh_direct_web):
    return walsh_direct_web


@pytest.fixture
def crawl(walsh_crawl):
    return walsh_crawl


@pytest.fixture(scope="session")
def walsh_crawl_launcher(crawl_launcher):
    return crawl_launcher


@pytest.fixture(scope="session")
def crawl_launcher(pytestconfig):
    """Start crawls and commands from one warm process, which ends with the tests."""
    with ForkServer(getattr(pytestconfig, "workerinput", {}).get("fork_server")) as server:
        yield server


@pytest.fixture
def simulated(tmp_path, pytestconfig, crawl_launcher):
    """Return a function that runs crawls in simulated time, their state in tmp_path."""

    from walsh_scrapy.testing.simulation import simulate

    def run(*sites, **options):
        given = {"folder": tmp_path / "simulation", "project": pytestconfig.rootpath}
        return simulate(*sites, launcher=crawl_launcher, **given | options)

    return run


@pytest.fixture
def run_python(crawl_launcher):
    """Return a function that runs `python ARGUMENTS` as `subprocess.run` would, but sooner.

    `environment` comes on top of ours, `stdin` is a text and `stdout` a descriptor, in whose place
    nothing is captured. `-m MODULE` and `-c PROGRAM` begin with the imports of a crawl.
    """

    def run(*arguments, cwd=None, environment=None, stdin="", stdout=None, encoding="utf-8"):
        command = [sys.executable, *map(str, arguments)]
        with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as error:
            given.write(stdin.encode())
            given.seek(0)
            process = crawl_launcher(
                command,
                cwd=cwd or Path.cwd(),
                env=os.environ | (environment or {}),
                stdin=given,
                stdout=out if stdout is None else stdout,
                stderr=error,
            )
            try:
                status = process.wait(HANG_SECONDS)
            finally:
                process.kill()
            told = [_told(file, encoding) for file in (out, error)]
        return CompletedProcess(command, status, *told)

    return run


@pytest.fixture
def run_command(run_python, pytestconfig):
    """Return a function that runs a command of `walsh` or `scrapy`, with the options of run_python.

    Its working directory is the project's, unless `cwd` is given. Settings stand before the
    arguments, so an argument may give another value.
    """

    def run(name, *arguments, settings=None, cwd=None, **options):
        given = [f"--set={setting}={value}" for setting, value in (settings or {}).items()]
        program = "walsh_scrapy" if name in COMMANDS else "scrapy"
        cwd = cwd or pytestconfig.rootpath
        return run_python("-m", program, name, *given, *arguments, cwd=cwd, **options)

    return run


@pytest.fixture
def called(tmp_path, monkeypatch, capfd, pytestconfig):
    """Return a function that calls a command in this process, in a project in a new folder.

    It returns the exit status, and what was printed: on standard output, and on standard error.
    """
    from walsh_scrapy.console import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "walsh_scrapy.settings")
    monkeypatch.syspath_prepend(pytestconfig.rootpath)

    def call(name, *words, **settings):
        options = [f"--set={setting}={value}" for setting, value in settings.items()]
        with pytest.raises(SystemExit) as ended:
            main([name, *options, *map(str, words)])
        return (ended.value.code or 0, *capfd.readouterr())

    return call


@pytest.fixture
def on_state(tmp_path, run_command):
    """Return a function that runs a command on the state that the crawls of a test share."""
    state = f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}"

    def run(*arguments, settings=None, **options):
        given = {"WALSH_STATE_URL": state, "WALSH_SOURCES": tmp_path / "sources.txt"}
        return run_command(*arguments, settings=given | (settings or {}), **options)

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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request, tmp_path):
    """The URL of a new state on each kind of database, or of none if the test is marked empty."""
    from walsh_scrapy.testing.crawl import copy_new_state

    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_url")
    url = f"sqlite:///{tmp_path / 'folder' / 'state.sqlite3'}"
    if not request.node.get_closest_marker("empty"):
        copy_new_state(url)
    return url


@pytest.fixture
def postgresql_url(request, postgresql_database):
    """The URL of a database on PostgreSQL, with a new state, or empty if the test is marked so."""
    postgresql_database.renew(is_empty=bool(request.node.get_closest_marker("empty")))
    return postgresql_database.url


@pytest.fixture
def encoded(postgresql_server):
    """Return a function that makes a database on PostgreSQL in an encoding, and returns its URL."""
    names = []

    def make(encoding):
        names.append(f"walsh_{uuid.uuid4().hex}")
        of_every_encoding = "LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        postgresql_server(f"CREATE DATABASE {names[-1]} ENCODING '{encoding}' {of_every_encoding}")
        return url_of(names[-1])

    yield make
    for name in names:
        postgresql_server(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server):
    """A database of this process, which is renewed faster than another one is created."""
    name = f"walsh_{uuid.uuid4().hex}"
    postgresql_server(f"CREATE DATABASE {name}")
    yield RenewedDatabase(name, postgresql_server)
    postgresql_server(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgresql_server():
    """Return a function that runs a statement on the PostgreSQL of this machine."""
    server = create_engine(
        url_of("test"), isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 60}
    )
    try:
        connection = server.connect()
    except OperationalError:
        pytest.skip("there is no PostgreSQL at 127.0.0.1:5432")
    with connection:
        yield lambda statement: connection.execute(text(statement))
    server.dispose()
