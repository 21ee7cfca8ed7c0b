"""What an installation needs: the add-on no extra, and the program of site owners only the core."""

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import ROOT, execute

EXTRAS = ("jinja2", "prometheus_client", "psycopg", "pygal", "pytest", "trustme")
HIDING = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from scrapy.cmdline import execute
execute(["scrapy", *sys.argv[2:]])
"""
#: What `walsh` does not import: Scrapy, what Scrapy needs, and the state.
LARGE = ("aiohttp", "cryptography", "lxml", "scrapy", "sqlalchemy", "twisted")
CALLING = """
import sys
from walsh_scrapy.console.program import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, *sorted({name.partition(".")[0] for name in sys.modules}))
"""
#: The packages that the wheel of `walsh` asks for, and those that these ask for.
SMALL = ("idna", "markdown_it", "mdurl", "protego", "pygments", "rich")
LOG_LINE = '192.0.2.1 - - [22/Nov/2026:10:00:01 +0000] "GET /x HTTP/1.1" 200 5 "-" "GPTBot/1.0"\n'
CALLS = [
    (["--version"], "0"),
    (["lint", "robots.txt"], "0"),
    (["judge", "--robots", "robots.txt", "access.log"], "1"),
    (["mayfetch", "--robots", "robots.txt", "https://a.example/x"], "1"),
]


def run(folder, *command, **environment):
    return execute(sys.executable, *command, cwd=folder, env=environment or None)


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


@pytest.fixture
def site(tmp_path):
    """A folder with what an owner of a site has: a robots.txt and a log."""
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /x\n")
    (tmp_path / "access.log").write_text(LOG_LINE)
    return tmp_path


@pytest.mark.parametrize(("arguments", "status"), CALLS)
def test_the_program_of_site_owners_imports_only_the_core(site, arguments, status):
    done = run(site, "-c", CALLING, *arguments, PYTHONPATH=str(ROOT))
    ended, *imported = done.stdout.splitlines()[-1].split()
    assert (ended, done.stderr) == (status, "")
    assert set(imported).isdisjoint(LARGE)


def test_its_own_wheel_has_what_it_needs_beside_five_small_packages(site):
    build = ["-m", "hatchling", "build", "--target", "wheel", "--directory", site / "dist"]
    assert run(ROOT / ".ci" / "walsh", *build).returncode == 0
    (wheel,) = (site / "dist").iterdir()
    zipfile.ZipFile(wheel).extractall(site / "installed")
    for name in SMALL:
        package = Path(find_spec(name).origin).parent
        (site / "installed" / name).symlink_to(package)
    isolated = f"import sys; sys.path.insert(0, {str(site / 'installed')!r})\n{CALLING}"
    for arguments, status in [*CALLS, (["conformance", "--", "true"], "2")]:
        done = run(site, "-I", "-S", "-c", isolated, *arguments)
        assert done.stdout.splitlines()[-1].split()[0] == status, done.stderr
    assert "pip install 'walsh-scrapy-console[testing]'" in done.stderr
