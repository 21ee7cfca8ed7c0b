"""The wheel in another project: `pip install`, one ADDONS line, its own identity."""

import json
import os
import shutil
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers import ROOT, execute
from tests.helpers.sites import paths, site
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site

USER_AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +http://bot.example/)"
#: What they wrote: settings, spider, pipeline and tests of their own.
THEIRS = ROOT / "tests" / "elsewhere"

pytestmark = pytest.mark.long


class Elsewhere:
    """A fresh environment with the wheel, and a project that Scrapy made in it."""

    def __init__(self, folder, root):
        self.folder, self.project = folder, folder
        self.wheel = self._built(root)
        self.python = self._environment()
        self.scrapy("startproject", "theirs")
        self.project = folder / "theirs"
        package = self.project / "theirs"
        with (package / "settings.py").open("a") as settings:
            settings.write((THEIRS / "settings.py").read_text())
        shutil.copy(THEIRS / "pipelines.py", package)
        shutil.copy(THEIRS / "pages.py", package / "spiders")
        shutil.copy(root / "spiders" / "feeds.py", package / "spiders")
        (self.project / "tests").mkdir()
        shutil.copy(THEIRS / "their_tests.py", self.project / "tests" / "test_pages.py")
        plugins = 'pytest_plugins = ["walsh_scrapy.testing.plugin"]\n'
        (self.project / "tests" / "conftest.py").write_text(plugins)

    def _built(self, root):
        folder = self.folder / "wheel"
        self._pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, root)
        (wheel,) = folder.glob("*.whl")
        return wheel

    def _environment(self):
        """An environment with the wheel; what the wheel needs comes from ours, by its path alone.

        So an editable install of ours is not followed.
        """
        venv.create(self.folder / "venv")
        (python,) = (self.folder / "venv").glob("*/python")
        told = self.run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        outer = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (Path(told.stdout.strip()) / "outer.pth").write_text("\n".join(outer))
        self._pip("--python", python, "install", "--no-index", "--no-deps", self.wheel)
        return python

    def scrapy(self, *arguments, cwd=None, web=None):
        return self.run(self.python, "-m", "scrapy", *arguments, cwd=cwd, web=web)

    def walsh(self, *arguments, cwd=None, web=None):
        return self.run(Path(self.python).with_name("walsh"), *arguments, cwd=cwd, web=web)

    def run(self, *command, cwd=None, web=None):
        kept = {
            name: text
            for name, text in os.environ.items()
            if name != "PYTHONPATH" and not name.startswith("SCRAPY_")
        }
        environment = kept | (web.environment if web else {})
        return execute(*command, cwd=cwd or self.project, env=environment)

    def _pip(self, *arguments):
        done = self.run(sys.executable, "-m", "pip", "-q", *arguments, cwd=self.folder)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory, pytestconfig):
    return Elsewhere(tmp_path_factory.mktemp("elsewhere"), pytestconfig.rootpath)


def test_the_wheel_holds_the_package_and_its_data(elsewhere):
    names = zipfile.ZipFile(elsewhere.wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "walsh_scrapy",
        "walsh_scrapy-0.1.0.dist-info",
    }
    data = {
        "walsh_scrapy/conformance.schema.json",
        "walsh_scrapy/entry.schema.json",
        "walsh_scrapy/policy/blocklist.schema.json",
        "walsh_scrapy/py.typed",
        "walsh_scrapy/summary.schema.json",
        "walsh_scrapy-0.1.0.dist-info/licenses/LICENSE",
    }
    assert data <= set(names)
    assert not [name for name in names if "/test_" in name or "/tests/" in name]


def test_pytest_gets_nothing_unless_a_project_asks(elsewhere):
    with zipfile.ZipFile(elsewhere.wheel) as wheel:
        entry_points = wheel.read("walsh_scrapy-0.1.0.dist-info/entry_points.txt").decode()
    assert "pytest" not in entry_points


def test_their_own_tests_judge_their_own_crawl(elsewhere):
    result = elsewhere.run(elsewhere.python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout


def test_their_exports_and_our_commands_beside_each_other(elsewhere, loopback_web):
    title = Reply('<title>A</title><a href="/1">1</a>', content_type="text/html")
    robots = "User-agent: *\nDisallow: /private/\n"
    web = loopback_web(Site("a.example", robots, {"/": title, "/1": title}))
    crawled = elsewhere.scrapy("crawl", "pages", web=web)
    assert crawled.returncode == 0, crawled.stderr
    assert_polite(web.log, serial=False, anonymous=False, user_agent=USER_AGENT)
    exported = elsewhere.project / "pages.jsonl"
    (item,) = map(json.loads, exported.read_text().splitlines())
    assert item == {"url": "http://a.example/1", "title": "A", "stamp": "theirs"}
    asked = elsewhere.walsh("mayfetch", "http://a.example/private/", web=web)
    assert asked.returncode == 1, asked.stderr
    assert "Disallow: /private/" in asked.stdout
    found = elsewhere.walsh("discover", "http://a.example/", web=web)
    assert "nothing" in found.stdout, found.stderr
    assert exported.read_text(), "a question replaces no export"
    assert paths(web.log).count("a.example/robots.txt") == 1, "one state for all of them"


def test_declared_sources_beside_spiders_that_follow_links(elsewhere, loopback_web):
    web = loopback_web(site("blog.example"))
    sources = write_sources(elsewhere.project / "feeds.txt", ["http://blog.example/feed"])
    given = ("-s", f"WALSH_SOURCES={sources}", "-s", "ITEM_PIPELINES={}", "-s", "FEEDS={}")
    crawled = elsewhere.scrapy("crawl", "feeds", *given, web=web)
    assert crawled.returncode == 0, crawled.stderr
    assert "new entries       2" in crawled.stderr
    assert_polite(web.log, serial=False, user_agent=USER_AGENT)
    listed = elsewhere.walsh("sources", "--json", *given)
    (source,) = map(json.loads, listed.stdout.splitlines())
    assert (source["outcome"], source["is_due"]) == ("fetched", False)
    exported = elsewhere.walsh("export", "-o", "-", *given)
    assert len(exported.stdout.splitlines()) == 2
    attested = elsewhere.walsh("attest", "--json").stdout.splitlines()
    verdicts = {row["row"]: row["verdict"] for row in map(json.loads, attested)}
    assert "does not hold" not in verdicts.values(), "another name breaks nothing"
    assert verdicts["1"] == "holds"
    assert verdicts["3"] == "not applicable", "it has no blocklist"


def test_a_new_project_of_the_wheel_alone(elsewhere, loopback_web):
    made = elsewhere.walsh("init", "new")
    assert "scrapy crawl feeds" in made.stdout, made.stderr
    new = elsewhere.project / "new"
    web = loopback_web(site("new.example"))
    write_sources(new / "sources.toml", ["http://new.example/feed"])
    refused = elsewhere.scrapy("crawl", "feeds", cwd=new, web=web)
    assert refused.returncode == 1
    assert '"new/1.0 (+' in refused.stderr
    assert web.log == []
    given = ("-s", f"WALSH_USER_AGENT={USER_AGENT}", "-s", "WALSH_UA_TOKEN=Example-Bot")
    crawled = elsewhere.scrapy("crawl", "feeds", *given, cwd=new, web=web)
    assert "new entries       2" in crawled.stderr
    assert_polite(web.log, user_agent=USER_AGENT)
    exported = elsewhere.walsh("export", "-o", "-", *given, cwd=new)
    assert len(exported.stdout.splitlines()) == 2


def test_the_demo_needs_no_project(elsewhere):
    shown = elsewhere.walsh("demo", cwd=elsewhere.folder)
    assert "No rule was broken." in shown.stdout, shown.stdout + shown.stderr


def test_outside_of_a_project_no_request_is_sent(elsewhere):
    ended = elsewhere.walsh("mayfetch", "http://a.example/", cwd=elsewhere.folder)
    assert ended.returncode == 3
    assert "no Scrapy project" in ended.stderr
    assert not (elsewhere.folder / ".scrapy").exists()
