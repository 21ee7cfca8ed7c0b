"""A copy of a state is whole while others write, and the next crawl says that it is a copy."""

import contextlib
import shutil
import sqlite3
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.helpers.records import SOURCE, commit, entry_of, make_state
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runs import RunRecord


@pytest.fixture
def file(tmp_path):
    return tmp_path / "state.sqlite3"


def noticed(file):
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        return state.backups.notice()


def counts(file):
    counted = "SELECT (SELECT count(*) FROM sources), (SELECT count(*) FROM entries)"
    with contextlib.closing(sqlite3.connect(file)) as database:
        return database.execute(counted).fetchone()


def test_a_copy_has_all_that_was_committed_where_a_plain_copy_has_nothing(file, tmp_path):
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        commit(state, SOURCE)
        state.backups.copy(tmp_path / "copy")
        plain = shutil.copy(file, tmp_path / "plain")
    assert counts(tmp_path / "copy") == (1, 0)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        counts(plain)


def test_what_is_written_meanwhile_is_in_a_copy_as_a_whole_or_not_at_all(file, tmp_path):
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
def test_a_copy_is_said_once_and_the_state_that_it_was_made_from_stays_silent(file, tmp_path, copy):
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        assert state.backups.notice() == ""
        state.runs.begin(RunRecord(spider="feeds", begun=1779516000.0))
    copied = Path(copy(file, tmp_path / "copy.sqlite3"))
    said = noticed(copied)
    assert f"{copied} is another file than the last crawl opened" in said
    assert "its last run began at 2026-05-23 06:00:00 UTC" in said
    assert [noticed(copied), noticed(file)] == ["", ""]
