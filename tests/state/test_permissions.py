"""A state that this user may not write is refused with one line, and stays as it is."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.helpers.records import SOURCE, commit, make_state
from walsh_scrapy.state import State, StateError

NOBODY = 65534


@pytest.fixture
def path():
    """The path of a state in a folder that every user can reach, unlike that of `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "folder" / "state.sqlite3"
        make_state(f"sqlite:///{path}")
        yield path
        path.parent.chmod(0o700)


@contextlib.contextmanager
def bound_by_permissions():
    """Be another user in a block, if this one is root, who may write everywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "why"),
    [
        (0o444, 0o777, "attempt to write a readonly database"),
        (0o666, 0o555, "attempt to write a readonly database"),
        (0o000, 0o777, "unable to open database file"),
        (0o666, 0o600, "Permission denied"),
        (None, 0o555, "unable to open database file"),
    ],
)
def test_what_may_not_be_written_is_refused_with_one_line(path, file_mode, folder_mode, why):
    path.unlink() if file_mode is None else path.chmod(file_mode)
    path.parent.chmod(folder_mode)
    with bound_by_permissions(), pytest.raises(StateError) as refused:
        make_state(f"sqlite:///{path}")
    (line,) = str(refused.value).splitlines()
    assert why in line
    assert "permission to" in line
    path.parent.chmod(0o700)
    if file_mode is not None:
        path.chmod(0o600)
        with contextlib.closing(State(f"sqlite:///{path}")) as state:
            assert state.sources.find(SOURCE.url) == SOURCE


def test_a_state_that_becomes_read_only_in_use_says_so(path):
    with contextlib.closing(State(f"sqlite:///{path}")) as state:
        state._database.read(lambda connection: connection.execute(text("PRAGMA query_only = ON")))
        with pytest.raises(StateError, match=r"readonly database; .* permission to write"):
            commit(state, SOURCE)
        assert state.sources.find(SOURCE.url) == SOURCE
