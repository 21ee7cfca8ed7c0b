"""What an installation needs: a crawl no extra, and a command says which extra it lacks."""

import sys

import pytest

from tests.helpers import ROOT, execute

EXTRAS = ("jinja2", "prometheus_client", "psycopg", "pygal", "pytest", "trustme")
HIDING = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from scrapy.cmdline import execute
execute(["scrapy", *sys.argv[2:]])
"""


def run(folder, *command):
    return execute(sys.executable, *command, cwd=folder)


def scrapy_without(modules, *arguments, state="sqlite:///:memory:"):
    """Run a command in this project, in a process that cannot import some modules."""
    settings = ["-s", f"WALSH_STATE_URL={state}", "-s", "WALSH_BLOCKLIST_URL=http://127.0.0.1:9/"]
    return run(ROOT, "-c", HIDING, ",".join(modules), *arguments, *settings)


@pytest.mark.parametrize(
    ("module", "extra", "status", "arguments"),
    [
        ("jinja2", "report", 2, ["report", "-o", "-"]),
        ("pygal", "report", 2, ["report", "-o", "-"]),
        ("prometheus_client", "status", 3, ["status", "--quiet", "--prometheus", "x.prom"]),
        ("trustme", "testing", 2, ["conformance", "--json"]),
        ("psycopg", "postgres", 1, ["hosts"]),
    ],
)
def test_a_command_without_its_extra_says_the_line_that_installs_it(
    module, extra, status, arguments
):
    state = "postgresql+psycopg://u@127.0.0.1:9/x" if module == "psycopg" else "sqlite:////no/x"
    rest = ["--", "true"] if arguments[0] == "conformance" else []
    done = scrapy_without([module], *arguments, *rest, state=state)
    assert done.returncode == status, done.stderr
    assert f"{module}: pip install 'walsh-scrapy[{extra}]'\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_crawl_needs_no_extra(tmp_path):
    (tmp_path / "sources.toml").write_text('[[source]]\nurl = "http://127.0.0.1:9/feed"\n')
    spider = ["crawl", "feeds", "-a", f"sources={tmp_path / 'sources.toml'}", "-a", "only=nothing"]
    done = scrapy_without(EXTRAS, *spider, state=f"sqlite:///{tmp_path / 'state.sqlite3'}")
    assert (done.returncode, "run finished" in done.stderr) == (0, True), done.stderr
