"""The file of a state is the one that is named, sound, and the same to the end of the run."""

import contextlib
import logging
import os
import re
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.helpers import cases
from tests.helpers.records import SOURCE, commit, entry_of, make_state, zero_page
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.state import State, StateError, database, retention
from walsh_scrapy.state.engine import bare_engine, without_password
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(database, "CREATION_TIMEOUT_SECONDS", 0.0)
    return tmp_path


def refused(url):
    with pytest.raises(StateError) as error:
        State(url)
    (line,) = str(error.value).splitlines()
    return line


@cases("written", "name")
def test_the_file_that_is_named_is_the_file_that_is_used(folder, written, name):
    make_state(f"sqlite:///{written}")
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert files == {folder / name}
    with State.existing(f"sqlite:///{folder}/{written}") as state:
        assert Stores(state).sources.find(SOURCE.url) is not None


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("state?.sqlite3", "a '?' in the path is written as %3F"),
        ("state.sqlite3?mode=ro", "no options"),
        ("a%00b", "control characters"),
        ("a%FF", "can't decode byte"),
        ("~/state.sqlite3", "not expanded"),
        ("old%20name", "the file is 'old%20name': write %25 for a '%'"),
    ],
)
def test_url_that_names_no_single_file_is_refused(folder, written, why):
    (folder / "old%20name").write_bytes(b"")
    assert why in refused(f"sqlite:///{written}")
    assert [path.name for path in folder.iterdir()] == ["old%20name"]


@pytest.mark.parametrize("name", ["plain", "a b", "a%20b", "what?", "100%", "a#b"])
def test_default_state_is_in_the_project_folder_of_any_name(folder, monkeypatch, name):
    project = folder / name
    project.mkdir()
    (project / "scrapy.cfg").touch()
    monkeypatch.chdir(project)
    make_state(Options.from_settings(Settings()).state_url)
    assert (project / ".scrapy" / "walsh.sqlite3").is_file()


def test_only_a_new_state_is_reported(folder, caplog):
    caplog.set_level(logging.INFO)
    make_state("sqlite:///state.sqlite3")
    assert f"sqlite:///{folder}/state.sqlite3" in caplog.text
    caplog.clear()
    make_state("sqlite:///state.sqlite3")
    assert caplog.text == ""


@pytest.mark.parametrize("call", [State, lambda url: State.existing(url).__enter__()])
def test_an_empty_file_is_a_lost_state_and_no_new_one(folder, call):
    (folder / "state").touch()
    (folder / "state-wal").write_bytes(b"\x37\x7f\x06\x82 commits")
    with pytest.raises(StateError, match="state is an empty file"):
        call("sqlite:///state")
    assert (folder / "state").stat().st_size == 0
    assert (folder / "state-wal").exists(), "SQLite would have deleted it"


def test_a_file_that_another_process_is_creating_is_not_lost(folder, monkeypatch):
    (folder / "state").touch()
    monkeypatch.setattr(database, "CREATION_TIMEOUT_SECONDS", 60.0)
    waits = []

    def created(seconds):
        waits.append(seconds)
        with contextlib.closing(sqlite3.connect(folder / "state")) as other:
            other.execute("PRAGMA journal_mode=WAL")

    monkeypatch.setattr(database.time, "sleep", created)
    make_state("sqlite:///state")
    assert len(waits) == 1


def test_damaged_write_ahead_log_is_refused(folder):
    make_state("sqlite:///state")
    (folder / "state-wal").write_bytes(os.urandom(3) + b"\xff" * 5000)
    assert "state-wal is damaged" in refused("sqlite:///state")
    (folder / "state-wal").write_bytes(b"\0" * 4096)  # after a power cut: nothing was committed
    make_state("sqlite:///state")


@pytest.mark.parametrize("end", [Path.unlink, lambda path: path.rename(path.with_name("old"))])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_deleted_or_replaced_state_accepts_no_more_writes(folder, end, is_replaced):
    with contextlib.closing(State("sqlite:///state")) as state:
        commit(state, SOURCE)
        end(folder / "state")
        if is_replaced:
            (folder / "state").write_bytes(b"another")
        for use in (Stores(state).sources.urls, lambda: commit(state, SOURCE)):
            with pytest.raises(StateError, match="deleted or replaced"):
                use()


def test_a_write_during_which_the_state_is_deleted_has_failed(folder):
    with (
        contextlib.closing(State("sqlite:///state")) as state,
        pytest.raises(StateError, match="deleted"),
    ):
        state.database.write(lambda _connection: (folder / "state").unlink())


def test_lock_of_another_session_is_an_error_after_a_timeout(postgresql_url, monkeypatch):
    monkeypatch.setattr("walsh_scrapy.state.engine.LOCK_TIMEOUT_SECONDS", 1.0)
    other = create_engine(postgresql_url, poolclass=NullPool)
    with contextlib.closing(State(postgresql_url)) as state, other.connect() as connection:
        connection.execute(text("LOCK TABLE sources"))
        with pytest.raises(StateError, match=r"lock timeout"):
            commit(state, SOURCE)


def test_a_lost_server_is_not_waited_for_once_the_run_is_to_end(postgresql_url):
    with contextlib.closing(State(postgresql_url, may_wait=lambda: False)) as state:
        server, _, name = postgresql_url.rpartition("/")
        engine = create_engine(f"{server}/test", isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
            with pytest.raises(StateError, match="check that the server runs"):
                commit(state, SOURCE)
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()


def test_a_server_that_takes_no_more_connections_is_one_line(postgresql_url):
    engine = create_engine(postgresql_url, poolclass=NullPool)
    name = postgresql_url.rpartition("/")[2]
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 0"))
    try:
        line = refused(postgresql_url.replace("postgres@", f"{name}@"))
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP ROLE {name}"))
    assert "too many connections" in line


@pytest.mark.empty
def test_role_without_rights_gets_a_remedy(postgresql_url):
    engine = create_engine(postgresql_url, poolclass=NullPool)
    name = postgresql_url.rpartition("/")[2]
    stranger = postgresql_url.replace("postgres@", f"{name}@")
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN"))
        connection.execute(text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
    try:
        new = refused(stranger)
        State(postgresql_url).close()
        known = refused(stranger)
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP ROLE {name}"))
    for message, object_ in ((new, "schema public"), (known, "table schema_version")):
        assert object_ in message
        assert "the role that owns" in message


def test_read_only_state_is_read_and_leaves_no_files_beside_it(folder, monkeypatch):
    url = f"sqlite:///{folder / 'state.sqlite3'}"
    make_state(url)
    before = sorted(folder.iterdir())
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    with contextlib.closing(State(url)) as state:
        assert len(Stores(state).sources.all()) == 1
        with Stores(state).entries.snapshot() as entries:
            assert list(entries.matching()) == []
        with pytest.raises(StateError, match="readonly database"):
            commit(state, SOURCE)
    assert sorted(folder.iterdir()) == before
    monkeypatch.undo()
    with contextlib.closing(State(url)) as crawl:
        commit(crawl, replace(SOURCE, url="http://b.example/feed"))
        monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
        with contextlib.closing(State(url)) as state:
            assert len(Stores(state).sources.all()) == 2, "the write-ahead log is read, too"


def test_a_folder_for_data_that_cannot_be_made_is_one_line(monkeypatch):
    def data_path(_name):
        raise PermissionError(13, "Permission denied", "/project/.scrapy")

    monkeypatch.setattr("walsh_scrapy.options.data_path", data_path)
    with pytest.raises(BadSetting, match=r"/project/\.scrapy, .*: Permission denied"):
        Options.from_settings(Settings())


def test_error_for_a_malformed_url_has_no_password():
    assert "secret" not in refused("postgresql+nodriver://me:secret@127.0.0.1/none")
    assert "secret" not in refused("mysterydb://me:secret@host/db")
    assert "secret" not in refused("postgresql+psycopg://me:secret@127.0.0.1:1/none")


@given(
    st.sampled_from(["postgresql+psycopg://", "postgresql+psycopg//", "postgresql:", "postgres://"]),
    st.text("se@:/?#%&=cret", min_size=1).map(lambda odd: f"SeCrEt{odd}sEcReT"),
    st.sampled_from(["me:{}@127.0.0.1:1/db", "me@127.0.0.1:1/db?sslmode=disable&password={}",
                     "127.0.0.1:1/?sslpassword={}", "me:x@127.0.0.1:1/db?p%61ssword={}&a=b"]),
)  # fmt: skip
def test_error_for_any_url_has_no_password(scheme, password, rest):
    url = scheme + rest.format(password)
    messages = [without_password(url)]
    try:
        engine = bare_engine(url)
    except StateError as error:
        messages.append(str(error))
    else:
        messages.append(without_password(engine.url))
    assert not re.search("secret", " ".join(messages), re.IGNORECASE)
    with pytest.raises(BadSetting) as refusal:
        Options.from_settings(Settings({"WALSH_STATE_URL": f"{url}\0"}))
    assert "secret" not in str(refusal.value).lower()


def test_two_processes_may_make_the_folder_of_the_state_at_once(monkeypatch):
    paths = iter([FileExistsError(17, "File exists"), "/project/.scrapy/walsh.sqlite3"])

    def data_path(_name):
        path = next(paths)
        if isinstance(path, Exception):
            raise path
        return path

    monkeypatch.setattr("walsh_scrapy.options.data_path", data_path)
    url = Options.from_settings(Settings()).state_url
    assert url == "sqlite:////project/.scrapy/walsh.sqlite3"


# A copy of a state is whole while others write, and the next crawl says that it is a copy.


@pytest.fixture
def file(tmp_path):
    return tmp_path / "state.sqlite3"


def noticed(file):
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        return state.backups.record_file()


def counts(file):
    counted = "SELECT (SELECT count(*) FROM sources), (SELECT count(*) FROM entries)"
    with contextlib.closing(sqlite3.connect(file)) as database:
        return database.execute(counted).fetchone()


def test_backup_has_every_commit_where_a_plain_copy_has_none(file, tmp_path):
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        commit(state, SOURCE)
        state.backups.copy(tmp_path / "copy")
        plain = shutil.copy(file, tmp_path / "plain")
    assert counts(tmp_path / "copy") == (1, 0)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        counts(plain)


def test_backup_has_concurrent_writes_as_a_whole_or_not_at_all(file, tmp_path):
    """Each visit is a source with its entry; the writer goes on until all copies are made."""
    written, is_copied = [], Event()
    has_begun = Event()

    def write():
        with contextlib.closing(State(f"sqlite:///{file}")) as state:
            while not is_copied.is_set():
                url = f"http://a.example/{len(written)}"
                record = SourceRecord(url=url, kind="feed")
                commit(state, record, [entry_of(url, url)])
                written.append(url)
                if len(written) == 20:
                    has_begun.set()

    make_state(f"sqlite:///{file}")
    writer = Thread(target=write)
    writer.start()
    try:
        assert has_begun.wait(60)
        with contextlib.closing(State(f"sqlite:///{file}")) as state:
            for number in range(3):
                before = len(written)
                state.backups.copy(tmp_path / f"copy{number}")
                sources, entries = counts(tmp_path / f"copy{number}")
                assert sources == entries + 1
                assert before <= entries <= len(written) + 1
    finally:
        is_copied.set()
        writer.join()


def test_a_damaged_state_is_not_copied(file, tmp_path):
    make_state(f"sqlite:///{file}")
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        for number in range(200):
            commit(state, SourceRecord(url=f"http://a.example/{number}", kind="feed"))
    body = bytearray(file.read_bytes())
    body[-3 * 4096 :] = b"\xff" * (3 * 4096)
    file.write_bytes(body)
    with (
        contextlib.closing(State(f"sqlite:///{file}")) as state,
        pytest.raises(StateError, match="cannot be copied to") as refused,
    ):
        state.backups.copy(tmp_path / "copy")
    assert "\n" not in str(refused.value)


def test_the_same_file_is_no_copy_wherever_it_is_moved(file, tmp_path):
    assert [noticed(file), noticed(file)] == ["", ""]
    (tmp_path / "other").mkdir()
    assert noticed(file.rename(tmp_path / "other" / "moved.sqlite3")) == ""


@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2])
def test_copied_state_is_reported_once_and_its_original_never(file, tmp_path, copy):
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        assert state.backups.record_file() == ""
        state.runs.begin(RunRecord(spider="feeds", started_at=1779516000.0))
    copied = Path(copy(file, tmp_path / "copy.sqlite3"))
    notice = noticed(copied)
    assert str(copied) in notice
    assert "2026-05-23 06:00:00 UTC" in notice
    assert [noticed(copied), noticed(file)] == ["", ""]


# The daily check of all pages.

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def damaged(folder):
    """The URL of a state that was sound at `NOW`, and has had a damaged page since then."""
    file = folder / "state.sqlite3"
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        state.backups.check_pages(NOW)
        assert state.backups.last_check() == (NOW, "")
    zero_page(file, "overrides")
    return f"sqlite:///{file}"


def check(url, now):
    """Check the pages of a state; return whether they were sound, and the check that is kept."""
    with contextlib.closing(State(url)) as state:
        try:
            state.backups.check_pages(now)
        except StateError:
            return False, state.backups.last_check()
        return True, state.backups.last_check()


def test_pages_are_checked_once_a_day(damaged):
    assert check(damaged, NOW + DAY - 1.0) == (True, (NOW, ""))
    is_sound, kept = check(damaged, NOW + DAY)
    assert not is_sound
    assert kept.at == NOW + DAY
    assert kept.damage


def test_damaged_pages_are_checked_again_at_each_start(damaged):
    assert not check(damaged, NOW + DAY)[0]
    assert not check(damaged, NOW + DAY + 1.0)[0]


def test_a_clock_that_was_set_back_does_not_put_off_the_check(damaged):
    assert not check(damaged, NOW - 1.0)[0]


def test_a_file_that_is_too_large_is_not_checked(damaged, monkeypatch):
    monkeypatch.setattr(retention, "MAX_CHECKED_BYTES", 0)
    assert check(damaged, NOW + DAY) == (True, (NOW, ""))


def test_a_server_checks_its_pages_itself(postgresql_url):
    assert check(postgresql_url, NOW) == (True, None)
