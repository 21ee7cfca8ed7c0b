"""The names that users import from the package; tests/typing/api.py has their types."""

import asyncio
import doctest
import importlib
import math
import pkgutil
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector

import walsh_scrapy
from tests.helpers import ROOT, execute
from tests.helpers.sites import IDENTITY
from walsh_scrapy import policy
from walsh_scrapy.addon import Addon
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.startup import check_gates
from walsh_scrapy.crawl.ticket import (
    visit_of,
)
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.feeds.feedcrawl import FeedCrawl
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcesspider import SourcesSpider
from walsh_scrapy.feeds.sourcevisit import SourceVisit
from walsh_scrapy.options import PREFIX, BadSetting, Options, WrongArgument
from walsh_scrapy.spider import DeclaringSpider

STANDARD = sys.stdlib_module_names


def test_the_package_has_the_names_that_it_lists_and_no_other():
    listed = {name: getattr(walsh_scrapy, name) for name in walsh_scrapy.__all__}
    classes = (Addon, Denied, RequestDeferred, SourcesSpider)
    assert listed == {kind.__name__: kind for kind in classes} | {
        "__version__": walsh_scrapy.__version__
    }
    assert dir(walsh_scrapy) == sorted(listed)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = walsh_scrapy.Nothing


def test_the_import_of_the_package_imports_nothing_else():
    code = "import sys; old = {*sys.modules}; import walsh_scrapy; print(*{*sys.modules} - old)"
    done = execute(sys.executable, "-c", code, cwd=ROOT)
    imported = {name for name in done.stdout.split() if name.partition(".")[0] not in STANDARD}
    assert imported == {"walsh_scrapy"}


def test_what_the_typing_test_writes_can_be_imported():
    api = importlib.import_module("tests.typing.api")
    assert issubclass(api.OwnAddon, Addon)


# What SourcesSpider promises to those that subclass it.

SOURCE = Source("http://blog.example/feed")


class OwnSpider(SourcesSpider):
    name = "own"
    kind = "feed"

    def parse(self, response, source, llmstxt):
        """Take an argument of its own."""


class WithArguments(OwnSpider):
    language = "en"

    def __init__(self, *args, depth="1", **arguments):
        super().__init__(*args, **arguments)


class OwnAddon(Addon):
    pass


def test_further_arguments_of_a_callback_are_given_by_name():
    request = OwnSpider().request(SOURCE, SOURCE.url, "text/plain", str.isascii, llmstxt="/x")
    assert request.cb_kwargs == {"source": SOURCE, "llmstxt": "/x"}
    assert request.headers["Accept"] == b"text/plain"
    assert visit_of(request) == SourceVisit(SOURCE, str.isascii)


def test_a_spider_has_defaults_for_every_attribute():
    spider = DeclaringSpider(name="any")
    assert spider.sources == ()
    assert not spider.force
    assert spider.alternative_to(Request(SOURCE.url)) is None


def test_the_arguments_of_a_subclass_and_of_scrapyd_are_known():
    WithArguments._check_arguments(["sources", "language", "depth", "_job", "_version"])
    for spider, name in ((WithArguments, "language_"), (OwnSpider, "depth"), (OwnSpider, "jobid")):
        with pytest.raises(BadSetting, match=name):
            spider._check_arguments([name])


@pytest.fixture
def own_crawl(tmp_path, monkeypatch):
    """Return a function that makes the crawl of a spider with one source, and its arguments."""
    monkeypatch.chdir(tmp_path)
    Path("sources.txt").write_text(SOURCE.url)
    state = f"sqlite:///{tmp_path}/state.sqlite3"
    crawler = Crawler(OwnSpider, {"ADDONS": {Addon: 500}, "WALSH_STATE_URL": state})
    crawler.stats = MemoryStatsCollector(crawler)
    crawls = []

    def make(**arguments):
        crawler.spider = OwnSpider.from_crawler(crawler, sources="sources.txt", **arguments)
        crawls.append(Crawl(crawler))
        return crawls[-1]

    yield make
    crawls[-1].close()


def test_a_text_chooses_sources_in_any_case(own_crawl):
    spider = own_crawl(only="BLOG").crawler.spider

    async def started():
        return [request.url async for request in spider.start()]

    assert [*spider.sources] == [SOURCE]
    assert asyncio.run(started()) == [SOURCE.url]


def test_a_text_that_chooses_no_source_refuses_the_start(own_crawl):
    with pytest.raises(WrongArgument, match=r"blog\.example"):
        _ = FeedCrawl.of(own_crawl(only="blgo.example")).file


@pytest.mark.parametrize(
    "addon", [Addon, OwnAddon, "walsh_scrapy.Addon", "walsh_scrapy.addon.Addon"]
)
def test_the_add_on_or_a_subclass_activates_the_gates(addon):
    check_gates(Settings({"ADDONS": {addon: 500}}))
    with pytest.raises(BadSetting):
        check_gates(Settings({"ADDONS": {addon: 500}, "WALSH_ENABLED": False}))
    with pytest.raises(BadSetting):
        check_gates(Settings({"ADDONS": {addon: None}}))


# Settings: a bad value stops the start with one clear line, for every setting.

NAMES = [PREFIX + field.name.upper() for field in fields(Options)]
WRONG = [[], {}, object(), b"x", "\x00", "\ud800", math.nan, -math.inf, -1, 10**400, "x\ny" * 999]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", WRONG, ids=range(len(WRONG)))
def test_a_value_of_another_kind_is_refused_in_one_line(name, value):
    with pytest.raises(BadSetting) as refused:
        Options.from_settings(Settings({name: value}))
    message = str(refused.value)
    assert name in message
    assert len(message.splitlines()) == 1
    assert len(message) < 600


@pytest.mark.parametrize("own", [{}, {"WALSH_BACKOFF_MAX": 499.5}])
def test_the_maximum_hold_is_not_below_the_first_one(own):
    """Else each hold would be as long as the one before, also with the default maximum (R5)."""
    base = {"WALSH_BACKOFF_BASE": 500} | IDENTITY
    with pytest.raises(BadSetting, match=r"^WALSH_BACKOFF_MAX is (300|499\.5), .* 500 .* set "):
        Options.from_settings(Settings(base | own))
    longest = Options.from_settings(Settings(base | {"WALSH_BACKOFF_MAX": 500}))
    assert longest.backoff_max == 500.0


# The examples in the docstrings of the policy modules are right.

MODULES = [found.name for found in pkgutil.walk_packages(policy.__path__, "walsh_scrapy.policy.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert any(test.examples for name in MODULES for test in finder.find(import_module(name), name))
