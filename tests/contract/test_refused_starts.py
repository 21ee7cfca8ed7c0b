"""A refused start is one line wherever a command runs, and an exception in a program."""

import json

import pytest

from tests.helpers.sites import ADDON, IDENTITY

SELECT = {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}
SPIDER = """
from scrapy import Spider

class Pages(Spider):
    name = "pages"
    start_urls = ["http://a.example/"]
    custom_settings = {}
"""
COMMANDS = {
    "scrapy": ["-m", "scrapy"],
    "its module": ["-m", "scrapy.cmdline"],
    "a script": ["-c", "from scrapy.cmdline import execute; execute()"],
}
SCRIPT = """
import asyncio, sys
from scrapy import Spider, crawler

kind, own = getattr(crawler, sys.argv[1]), eval(sys.argv[2])

class Pages(Spider):
    name = "pages"
    start_urls = ["http://a.example/"]
    custom_settings = own

async def crawl():
    try:
        ended = kind(SETTINGS).crawl(Pages)
        if kind is crawler.CrawlerRunner:
            ended = ended.asFuture(asyncio.get_running_loop())
        await ended
    except Exception as error:
        print(error)

if sys.argv[1].endswith("Runner"):
    from twisted.internet.asyncioreactor import install
    install(asyncio.new_event_loop())
    asyncio.get_event_loop().run_until_complete(crawl())
else:
    process = kind(SETTINGS)
    process.crawl(Pages)
    process.start()
    print(process.bootstrap_failed)
"""
BAD = {"WALSH_MAX_RETRIES": 0.5}


def options(settings):
    given = {name: json.dumps(value) for name, value in settings.items() if name == "ADDONS"}
    return [word for pair in (settings | given).items() for word in ("-s", "{}={}".format(*pair))]


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch, installed):
    """Run the commands outside any project."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def spider(tmp_path):
    """Return a function that writes a spider with settings of its own, and returns its file."""

    def write(**own):
        file = tmp_path / "pages.py"
        file.write_text(SPIDER.replace("{}", repr(own)))
        return file

    return write


def judge(done, *words):
    """Judge what a command printed that was refused with a line."""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("walsh-scrapy: ")]
    assert [word for word in words if word not in line] == []
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Unhandled" not in done.stderr


@pytest.mark.parametrize("start", COMMANDS)
@pytest.mark.parametrize("forced", [False, True], ids=["AsyncCrawlerProcess", "CrawlerProcess"])
def test_a_command_prints_one_line(run_python, spider, start, forced):
    given = {**ADDON, **IDENTITY, **BAD, "FORCE_CRAWLER_PROCESS": forced}
    done = run_python(*COMMANDS[start], "runspider", spider(), *options(given))
    judge(done, "WALSH_MAX_RETRIES", "0.5")


@pytest.mark.parametrize("name", ["fetch", "shell"])
def test_fetch_and_shell_print_one_line_too(run_python, name):
    given = options(ADDON | IDENTITY | BAD)
    done = run_python("-m", "scrapy.cmdline", name, "http://a.example/", *given)
    judge(done, "WALSH_MAX_RETRIES")


def test_what_is_refused_before_the_log_is_set_up(run_python, spider):
    given = options(ADDON | IDENTITY | SELECT)
    done = run_python("-m", "scrapy.cmdline", "runspider", spider(), *given)
    judge(done, *SELECT)


def test_a_log_file_has_the_line_as_well(run_python, spider, tmp_path):
    log = tmp_path / "log"
    given = options(ADDON | IDENTITY | BAD | {"LOG_FILE": log})
    judge(run_python("-m", "scrapy.cmdline", "runspider", spider(), *given))
    assert "CRITICAL: WALSH_MAX_RETRIES" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    "own", [SELECT, {"TWISTED_REACTOR": None}, {"TWISTED_REACTOR_ENABLED": False}], ids=str
)
def test_a_spider_with_another_reactor_does_not_start(run_python, spider, own):
    given = options(ADDON | IDENTITY)
    done = run_python("-m", "scrapy", "runspider", spider(**own), *given)
    judge(done, *own)


@pytest.mark.parametrize("own", [SELECT, BAD], ids=list)
@pytest.mark.parametrize("kind", ["CrawlerRunner", "AsyncCrawlerRunner"])
def test_a_program_catches_the_exception(run_python, kind, own):
    settings = f"SETTINGS = {ADDON | IDENTITY}\n"
    done = run_python("-c", settings + SCRIPT, kind, repr(own))
    (name,) = own
    assert done.stdout.startswith(f"{name} is ")
    assert "walsh-scrapy: " not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("own", [SELECT, BAD], ids=list)
@pytest.mark.parametrize("kind", ["CrawlerProcess", "AsyncCrawlerProcess"])
def test_a_crawler_process_prints_one_line(run_python, kind, own):
    settings = f"SETTINGS = {ADDON | IDENTITY}\n"
    done = run_python("-c", settings + SCRIPT, kind, repr(own))
    assert done.stdout == "True\n"
    assert done.stderr.count("walsh-scrapy: ") == 1
    assert "Traceback" not in done.stderr
