"""A state that is suddenly new: what the end of a crawl says, and what it notes in a folder."""

import contextlib
import logging
from types import SimpleNamespace

import pytest
from sqlalchemy import make_url

from walsh_scrapy.crawl.startup import report_new_state
from walsh_scrapy.state import State
from walsh_scrapy.state.moving import move
from walsh_scrapy.state.runstore import RunRecord

OTHER_ID = "0123456789abcdef"


@pytest.fixture
def state(url):
    with contextlib.closing(State(url)) as opened:
        yield opened


@pytest.fixture
def end_crawl(tmp_path, caplog):
    """End a crawl with a sources file in a folder; return the level of the line that it logs."""
    caplog.set_level(logging.INFO, "walsh_scrapy.crawl.startup")

    def end(state, folder=tmp_path, command=""):
        caplog.clear()
        number = state.runs.begin(RunRecord(spider="feeds", command=command, started_at=1.0))
        if not command:
            report_new_state(SimpleNamespace(state=state, run=number), folder)
        state.runs.end(number, 2.0, "finished", {})
        levels = [record.levelname for record in caplog.records]
        assert len(levels) <= 1
        return levels[0] if levels else None

    return end


@pytest.fixture
def note(tmp_path):
    """The file that names the state of a folder."""
    (tmp_path / ".scrapy").mkdir()
    return tmp_path / ".scrapy" / "walsh-state"


def test_a_new_state_is_said_once_with_its_place(state, end_crawl, note, caplog):
    assert end_crawl(state) == "INFO"
    assert str(state.database) in caplog.text
    assert note.read_text().strip() == state.id
    assert end_crawl(state) is None


def test_a_new_state_beside_the_note_of_another_is_a_warning(state, end_crawl, note):
    note.write_text(OTHER_ID)
    assert end_crawl(state) == "WARNING"
    assert note.read_text().strip() == state.id
    assert end_crawl(state) is None


def test_a_crawl_that_did_not_end_leaves_the_state_new(state, end_crawl, note):
    note.write_text(OTHER_ID)
    state.runs.begin(RunRecord(spider="feeds", started_at=1.0))  # it was killed
    assert end_crawl(state) == "WARNING"


def test_a_command_leaves_the_state_new(state, end_crawl, note):
    note.write_text(OTHER_ID)
    assert end_crawl(state, command="mayfetch") is None
    assert end_crawl(state) == "WARNING"


def test_a_state_that_was_moved_is_not_new(state, end_crawl, note, tmp_path):
    end_crawl(state)
    target = f"sqlite:///{tmp_path / 'moved.sqlite3'}"
    move(state.database, target, lambda line: None)
    with contextlib.closing(State(target)) as moved:
        assert moved.id != state.id
        assert end_crawl(moved) is None
        assert note.read_text().strip() == moved.id


def test_a_copy_that_is_noticed_is_not_new(end_crawl, note, tmp_path):
    file = tmp_path / "walsh.sqlite3"
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        state.backups.record_file()
        end_crawl(state)
        first_id = state.id
    contents = file.read_bytes()
    file.rename(tmp_path / "old.sqlite3")
    file.write_bytes(contents)
    with contextlib.closing(State(f"sqlite:///{file}")) as state:
        assert state.backups.record_file()
        assert state.id != first_id
        assert end_crawl(state) is None
        assert note.read_text().strip() == state.id


def test_two_states_in_turn_give_no_warning(state, end_crawl, note, tmp_path):
    with contextlib.closing(State(f"sqlite:///{tmp_path / 'two.sqlite3'}")) as other:
        end_crawl(state)
        end_crawl(other)
        assert [end_crawl(state), end_crawl(other), end_crawl(state)] == [None] * 3


def test_a_folder_that_cannot_be_written_is_no_error(state, tmp_path, caplog):
    (tmp_path / ".scrapy").write_text("no folder")
    caplog.set_level(logging.DEBUG, "walsh_scrapy.crawl.startup")
    report_new_state(SimpleNamespace(state=state, run=None), tmp_path)
    assert [record.levelname for record in caplog.records] == ["INFO", "DEBUG"]
    assert (tmp_path / ".scrapy").read_text() == "no folder"


def test_a_crawl_without_a_sources_file_notes_nothing(state, end_crawl, note):
    assert end_crawl(state, folder=None) == "INFO"
    assert not note.exists()


def test_a_state_in_memory_is_new_each_time_and_not_noted(end_crawl, note):
    with contextlib.closing(State("sqlite://")) as state:
        assert end_crawl(state) is None
    assert not note.exists()


def test_no_password_is_shown(postgresql_url, end_crawl, note, caplog):
    url = make_url(postgresql_url).set(password="s3cret")
    note.write_text(OTHER_ID)
    with contextlib.closing(State(url.render_as_string(hide_password=False))) as state:
        assert end_crawl(state) == "WARNING"
        assert "s3cret" not in caplog.text + note.read_text()
