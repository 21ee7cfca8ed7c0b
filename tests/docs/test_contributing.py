"""CONTRIBUTING.md: its example of a gate works in a copy of this project."""

import re
import sys

import pytest

from benchmarks.mutants.mutant import CONTROL, write_project
from tests.helpers import ROOT, execute

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
EXAMPLE = PAGE.partition("\n## An example: a gate\n")[2].partition("\n## ")[0]
#: A file of the example, and its text; of the file of gates it is the line that is added.
FILE = re.compile(r"in\s`([\w/]+\.py)`[^`]*\n\n```python\n(.+?)```", re.DOTALL)
GATES = "walsh_scrapy/crawl/startup.py"


@pytest.mark.crawl
def test_the_gate_and_its_tests_work_as_written(tmp_path):
    project = write_project(CONTROL, tmp_path)
    files = dict(FILE.findall(EXAMPLE))
    gates = (project / GATES).read_text("utf-8")
    before, next_gate, after = gates.partition("    ROBOTS = 100, ")
    files[GATES] = f"{before}{files[GATES]}{next_gate}{after}"
    for name, text in files.items():
        (project / name).write_text(text, "utf-8")
    tests = [name for name in files if name.startswith("tests/")]
    ran = execute(*(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"), *tests, cwd=project)
    assert ran.returncode == 0, ran.stdout
    assert "5 passed" in ran.stdout
    assert len(tests) == 2
