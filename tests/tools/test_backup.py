"""`walsh backup`: a copy of the state in a new file or another database, and a crawl goes on."""

import contextlib
import socket
import struct
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from scrapy.settings import Settings
from sqlalchemy import create_engine, insert, text
from sqlalchemy.pool import NullPool

from tests.helpers.records import (
    RECORD,
    SOURCE,
    commit,
    entry_of,
    log_requests,
    make_state,
)
from tests.helpers.sites import feed, site
from walsh_scrapy.options import Options
from walsh_scrapy.state import State
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import runs, workers

SOURCES = ["http://blog.example/feed"]


# A file.


def test_crawl_from_a_backup_repeats_no_request_and_reports_it(
    loopback_web, crawl, on_state, tmp_path
):
    """Nothing is due at first, and a forced visit has the validators of the state it came from."""
    visited = loopback_web(site("blog.example", feed=feed(etag='"1"')))
    crawl(visited, sources=SOURCES)
    file = tmp_path / "new" / "walsh.sqlite3"
    backup = on_state("backup", "-o", file)
    assert backup.returncode == 0
    assert backup.stderr.endswith(f" {file}\n")
    assert [path.name for path in file.parent.iterdir()] == ["walsh.sqlite3"]
    options = {"sources": SOURCES}
    options["settings"] = {"WALSH_STATE_URL": f"sqlite:///{file}"}
    again = crawl(visited, **options)
    assert again.log == []
    assert again.stderr.count("another file") == 1
    forced = crawl(visited, **options, arguments={"force": "1"})
    assert [(hit.path, hit.status) for hit in forced.log] == [("/feed", 304)]
    assert "another file" not in forced.stderr


def test_a_copy_is_offered_to_files_only(run_command):
    """A database cannot be a stream."""
    for arguments in (("--help",), ("-o", "-"), ()):
        ended = run_command("walsh", "backup", *arguments)
        assert "standard output" not in ended.stdout + ended.stderr
    assert (
        run_command("walsh", "backup", "-o", "-").returncode,
        run_command("walsh", "backup").returncode,
    ) == (2, 2)


# Another database.


@pytest.fixture
def state_url(tmp_path):
    """The URL of a state with a row of each kind that is counted."""
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    make_state(url)
    with contextlib.closing(State(url)) as state:
        state.runs.begin(RunRecord(spider="feeds", started_at=1.0))
        commit(state, SOURCE, [entry_of(SOURCE.url, key) for key in "ab"])
        log_requests(state, RECORD, RECORD, RECORD)
    return url


@pytest.mark.postgresql
@pytest.mark.empty
def test_crawls_go_on_in_another_database_and_back(
    direct_web, crawl, run_command, postgresql_url, tmp_path
):
    """Nothing is due in the copy, its validators are those of before, and no entry is new twice."""
    visited = direct_web(site("blog.example", feed=feed(etag='"1"')))
    first = crawl(visited, sources=SOURCES)
    assert len(first.items) > 0
    urls = [f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}", postgresql_url]
    urls.append(f"sqlite:///{tmp_path / 'back.sqlite3'}")
    for source, target in pairwise(urls):
        copied = run_command("backup", "-o", target, settings={"WALSH_STATE_URL": source})
        assert (copied.returncode, copied.stdout) == (0, f'WALSH_STATE_URL = "{target}"\n')
        options = {"sources": SOURCES, "settings": {"WALSH_STATE_URL": target}}
        again = crawl(visited, **options)
        assert (again.log, again.items) == ([], [])
        assert "another file" not in again.stderr
        forced = crawl(visited, **options, arguments={"force": "1"})
        assert [(hit.path, hit.status) for hit in forced.log] == [("/feed", 304)]
        assert forced.items == []


@pytest.mark.postgresql
@pytest.mark.empty
def test_a_copy_ends_with_its_counts_and_the_setting(called, state_url, postgresql_url):
    """The password in the URL is not shown; the setting is without it, and opens the copy."""
    secret = postgresql_url.replace("postgres@", "postgres:sec%40ret@")
    secret += "?connect_timeout=9&password=sec%40ret&pooler=1"
    status, printed, told = called("backup", "-o", secret, WALSH_STATE_URL=state_url)
    assert status == 0, told
    assert "sec" not in printed + told
    name, url = printed.removesuffix("\n").split(" = ")
    assert (name, url) == (
        "WALSH_STATE_URL",
        f'"{postgresql_url}?connect_timeout=9&pooler=1"',
    )
    assert told.splitlines()[-1].endswith(": 1 run, 1 source, 2 entries, 3 requests")
    with contextlib.closing(State(url.strip('"'))) as state:
        assert len(list(state.rows("readable_sources"))) == 1


def test_a_file_gets_a_setting_that_opens_it(called, state_url, tmp_path):
    status, printed, _ = called(
        "backup", "-o", "sqlite:///my%20state%25.sqlite3", WALSH_STATE_URL=state_url
    )
    assert status == 0
    assert (tmp_path / "my state%.sqlite3").is_file()
    url = printed.split('"')[1]
    assert url == f"sqlite:///{tmp_path}/my%20state%25.sqlite3"
    assert Options.from_settings(Settings({"WALSH_STATE_URL": url})).state_url == url
    with contextlib.closing(State(url)) as state:
        assert len(list(state.rows("readable_sources"))) == 1


def test_a_file_with_rows_is_never_overwritten(called, state_url, tmp_path):
    other = f"sqlite:///{tmp_path / 'other.sqlite3'}"
    make_state(other)
    before = Path(tmp_path / "other.sqlite3").read_bytes()
    status, printed, told = called("backup", "-o", other, WALSH_STATE_URL=state_url)
    assert (status, printed, told.count("\n")) == (3, "", 1)
    assert "already has rows, in sources" in told
    assert Path(tmp_path / "other.sqlite3").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(called, state_url):
    place = "sqlite:////proc/nowhere/copy.sqlite3"
    status, printed, told = called("backup", "-o", place, WALSH_STATE_URL=state_url)
    assert (status, printed, told.count("\n")) == (3, "", 1)
    assert "the target is in the folder of /proc/nowhere/copy.sqlite3" in told


@pytest.mark.parametrize("content", ["", "[[sources]]\n" * 100])
def test_a_file_that_is_no_database_is_left_alone(called, state_url, tmp_path, content):
    (tmp_path / "sources.toml").write_text(content, "utf-8")
    status, _, told = called("backup", "-o", "sqlite:///sources.toml", WALSH_STATE_URL=state_url)
    assert (status, told.count("\n")) == (3, 1)
    assert (tmp_path / "sources.toml").read_text("utf-8") == content


@pytest.mark.postgresql
def test_a_state_on_a_server_is_no_file(called, postgresql_url):
    """The line says how it is copied all the same."""
    status, _, told = called("backup", "-o", "copy.sqlite3", WALSH_STATE_URL=postgresql_url)
    assert (status, told.count("\n")) == (1, 1)
    assert "pg_dump --format=custom" in told
    assert "-o sqlite:///FILE" in told


@pytest.mark.postgresql
def test_a_target_in_use_is_refused_with_the_crawl(called, state_url, postgresql_url):
    with create_engine(postgresql_url, poolclass=NullPool).begin() as connection:
        run = {"id": 7, "spider": "feeds", "started_at": 1.0, "versions": "{}", "settings": "{}"}
        connection.execute(insert(runs).values(run))
        beat = text("extract(epoch FROM now()) + 44")
        row = {"id": "w", "run": 7, "started_at": 0.0, "expires_at": beat}
        connection.execute(insert(workers).values(row))
    status, printed, told = called("backup", "-o", postgresql_url, WALSH_STATE_URL=state_url)
    assert (status, printed, told.count("\n")) == (3, "", 1)
    assert "is in use: run 7 (feeds), since 1970-01-01" in told


@pytest.mark.postgresql
def test_a_database_that_is_missing_or_unreachable_is_named(called, state_url, postgresql_url):
    for url, reason in (
        ("postgresql+psycopg://us:secret@127.0.0.1:1/none", "refused"),
        (f"{postgresql_url}_none", "does not exist"),
    ):
        status, printed, told = called("backup", "-o", url, WALSH_STATE_URL=state_url)
        assert (status, printed, told.count("\n")) == (3, "", 1)
        assert reason in told
        assert "secret" not in told


class Doorkeeper:
    """A server that speaks PostgreSQL's protocol as far as a wrong password: it accepts none."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept)
        self.passwords = []
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, connection.makefile("rb") as reader:
                    self._refuse(connection, reader)

    def _refuse(self, connection, reader):
        while True:
            (length,) = struct.unpack("!I", reader.read(4))
            (code,) = struct.unpack("!I", reader.read(length - 4)[:4])
            if code == 3 << 16:  # the protocol; anything else asks for TLS
                break
            connection.sendall(b"N")
        connection.sendall(b"R" + struct.pack("!II", 8, 3))  # asks for a password
        if reader.read(1) != b"p":
            return
        (length,) = struct.unpack("!I", reader.read(4))
        self.passwords.append(reader.read(length - 4).rstrip(b"\0").decode())
        fields = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "us"\0\0'
        connection.sendall(b"E" + struct.pack("!I", 4 + len(fields)) + fields)


@pytest.mark.parametrize("place", ["url", "environment", "file"])
def test_a_wrong_password_is_refused_and_never_shown(
    called, state_url, tmp_path, monkeypatch, place
):
    """It is looked for where libpq looks for it."""
    pytest.importorskip("psycopg")
    with Doorkeeper() as server:
        url = f"postgresql+psycopg://us@127.0.0.1:{server.port}/walsh"
        if place == "url":
            url = url.replace("us@", "us:s3cret@")
        elif place == "environment":
            monkeypatch.setenv("PGPASSWORD", "s3cret")
        else:
            (tmp_path / "pgpass").write_text("*:*:*:us:s3cret\n", "utf-8")
            (tmp_path / "pgpass").chmod(0o600)
            monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
        status, printed, told = called("backup", "-o", url, WALSH_STATE_URL=state_url)
    assert server.passwords == ["s3cret"]
    assert (status, printed, told.count("\n")) == (3, "", 1)
    assert "password authentication failed" in told
    assert "s3cret" not in told
