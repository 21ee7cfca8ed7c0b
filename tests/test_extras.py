"""What an installation needs: the add-on no extra, and the program of site owners only the core."""

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import ROOT, execute

EXTRAS = ("jinja2", "prometheus_client", "psycopg", "pygal", "pytest", "shtab", "trustme")
HIDING = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from scrapy.cmdline import execute
execute(["scrapy", *sys.argv[2:]])
"""
#: The packages that the wheel of `walsh` asks for, and those that these ask for.
SMALL = ("idna", "markdown_it", "mdurl", "protego", "pygments", "rich")
CALLS = [
    (["--version"], 0),
    (["lint", "robots.txt"], 0),
    (["mayfetch", "--robots", "robots.txt", "https://a.example/x"], 1),
    (["conformance", "--", "true"], 2),
]


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
        ("shtab", "completion", 2, ["completion", "bash"]),
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


def test_its_own_wheel_has_what_it_needs_beside_five_small_packages(tmp_path):
    site = tmp_path  # with what an owner of one has
    (site / "robots.txt").write_text("User-agent: *\nDisallow: /x\n")
    build = ["-m", "hatchling", "build", "--target", "wheel", "--directory", site / "dist"]
    assert run(ROOT / ".ci" / "walsh", *build).returncode == 0
    (wheel,) = (site / "dist").iterdir()
    zipfile.ZipFile(wheel).extractall(site / "installed")
    for name in SMALL:
        package = Path(find_spec(name).origin).parent
        (site / "installed" / name).symlink_to(package)
    calling = "from walsh_scrapy.console.program import main; main()"
    isolated = f"import sys; sys.path.insert(0, {str(site / 'installed')!r}); {calling}"
    for arguments, status in CALLS:
        done = run(site, "-I", "-S", "-c", isolated, *arguments)
        assert done.returncode == status, done.stderr
    assert "pip install 'walsh-scrapy-console[testing]'" in done.stderr
