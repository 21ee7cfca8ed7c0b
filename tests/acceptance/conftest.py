"""What the process of `tests.acceptance.crawls` found, run once for all workers."""

import fcntl
import json
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def found(tmp_path_factory, pytestconfig):
    """Return a function: the name of a part -> its findings by their names."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def run(part):
        folder = shared / "acceptance"
        result = folder / f"{part}.json"
        with (shared / f"{part}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                command = [sys.executable, "-m", "tests.acceptance.crawls", folder, part]
                done = subprocess.run(
                    command, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stderr
        return {each["name"]: each for each in json.loads(result.read_text("utf-8"))}

    return run
