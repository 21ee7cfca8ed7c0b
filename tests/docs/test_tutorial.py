"""The commands of docs/tutorial.md, run in order, print what the page shows."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT

pytestmark = pytest.mark.crawl

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(sh|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
#: The installation: the tests run in an environment that has the package.
INSTALLATION = re.compile(r"^(?:python3 -m venv|\. \.venv/|pip install).*\n", re.MULTILINE)
#: Jobs have numbers (`set -m`), and the server ends even if a step fails.
STOP_SERVER = "set -m\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
END_OF_STEP = "--- end of step ---"


def steps():
    """Pair each script with the output that the page shows for it, empty if it shows none."""
    pairs: list[list[str]] = []
    for language, text in BLOCKS:
        if language == "sh":
            pairs.append([text, ""])
        else:
            pairs[-1][1] = text
    return pairs


STEPS = steps()


def mask_times(line):
    """Replace dates, times, seconds and keys: they differ in each run or with the port."""
    line = re.sub(r"\d+/\w+/\d{4}|\d{4}-\d\d-\d\d", "DATE", line)
    line = re.sub(r"\d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"\b[0-9a-f]{64}\b", "KEY", line)
    return re.sub(r"\b[\d.]+ s\b *", "N s ", line)


def test_each_step_prints_what_the_page_shows(tmp_path):
    """The scripts run in one shell, with a free port in the place of 8000."""
    program = tmp_path / "bin" / "walsh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m walsh_scrapy "$@"\n')
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    script = STOP_SERVER + "".join(f"{text}echo '{END_OF_STEP}'\n" for text, _ in STEPS)
    script = INSTALLATION.sub("", script).replace("8000", port)
    path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    outputs = ran.stdout.replace(port, "8000").split(END_OF_STEP)
    for output, (script, shown) in zip(outputs, STEPS, strict=False):
        printed = {mask_times(line) for line in output.splitlines()}
        missing = [line for line in shown.splitlines() if mask_times(line) not in printed]
        assert missing == [], f"{script}{output}"


def test_the_page_has_steps_with_output():
    assert len([output for _, output in STEPS if output]) >= 5
