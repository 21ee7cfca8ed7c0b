"""docs/upstream.md: each program there shows what its section says, with its output."""

import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT, needs_scrapy_2_19

PAGE = (ROOT / "docs" / "upstream.md").read_text("utf-8")
SECTIONS = re.findall(r"^### (.+)\n((?:(?!##).*\n)*)", PAGE, re.MULTILINE)
PROGRAM = re.compile(r"```python\n(.+?)```\n\n```text\n(.+?)```", re.DOTALL)
PROGRAMS = {title: match.groups() for title, body in SECTIONS if (match := PROGRAM.search(body))}
BUFFER = "The duplicate filter buffers what it has seen"
MAX_LINES = 15


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(title, marks=needs_scrapy_2_19("the buffer")) if title == BUFFER else title
        for title in PROGRAMS
    ],
)
def test_a_program_prints_what_the_page_says(title, tmp_path):
    program, output = PROGRAMS[title]
    file = tmp_path / "program.py"
    file.write_text(program, "utf-8")
    command = [sys.executable, "-W", "ignore", str(file)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert run.stdout == output, run.stderr


def test_only_a_request_for_documentation_has_no_program():
    titles = [title for title, _ in SECTIONS]
    assert [title for title in titles if title not in PROGRAMS] == [
        "Some helpers have no documentation"
    ]
    assert len(PROGRAMS) > 10


def test_programs_are_short():
    """Blank lines do not count: the formatter adds them."""
    for title, (program, _) in PROGRAMS.items():
        lines = [line for line in program.splitlines() if line]
        assert len(lines) <= MAX_LINES, title


def test_only_one_module_uses_private_names_of_scrapy():
    modules = sorted((ROOT / "walsh_scrapy").rglob("*.py"))
    users = [path.name for path in modules if "crawler.engine." in path.read_text("utf-8")]
    assert users == ["scrapyinternals.py"]
