"""R4 in a program that runs crawls in event loops of its own: never two at once."""

import os
import sys

import pytest

from tests.helpers import execute
from tests.helpers.sites import judge
from walsh_scrapy.testing.web import Reply, Site

GATES = "walsh_scrapy.downloadermiddlewares"
SCRIPT = f"""
import asyncio, logging, sys
from threading import Thread
from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerRunner

SETTINGS = {{
    "TWISTED_REACTOR_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "WALSH_USER_AGENT": "Example-Bot/1.0",
    "WALSH_UA_TOKEN": "Example-Bot",
    "WALSH_STATE_URL": sys.argv[2],
    "DOWNLOAD_HANDLERS": {{"http": "walsh_scrapy.downloadhandler.DownloadHandler"}},
    "DOWNLOADER_MIDDLEWARES": {{
        "{GATES}.robots.RobotsMiddleware": 100,
        "{GATES}.identity.IdentityMiddleware": 860,
        "{GATES}.pacing.PacingMiddleware": 890,
    }},
}}

class Listed(Spider):
    name = "listed"

    async def start(self):
        for host in self.hosts:
            yield Request(f"http://{{host}}.example/")

    async def parse(self, response):
        if self.beside:
            hosts, self.beside = self.beside, ""
            other = Thread(target=run, args=(hosts,))
            other.start()
            await asyncio.to_thread(other.join)
        self.logger.warning("read %s", response.url)

async def crawl(**arguments):
    try:
        await AsyncCrawlerRunner(SETTINGS).crawl(Listed, **arguments)
    except Exception as error:
        logging.critical("%s", error)

def run(hosts, beside=""):
    asyncio.run(crawl(hosts=hosts, beside=beside))

logging.basicConfig(level="WARNING", format="%(levelname)s %(message)s")
if sys.argv[1] == "beside":
    run("ab", beside="cd")
run("ab")
run("cd")
"""


def run(web, folder, how):
    path = os.pathsep.join((web.environment["PYTHONPATH"], os.environ["PYTHONPATH"]))
    environment = os.environ | web.environment | {"PYTHONPATH": path}
    state = f"sqlite:///{folder / 'state.sqlite3'}"
    done = execute(sys.executable, "-c", SCRIPT, how, state, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


WRONG = """
import asyncio, sys
from scrapy import Spider
from scrapy.crawler import AsyncCrawlerRunner, CrawlerRunner
from twisted.internet.asyncioreactor import install

class Any(Spider):
    name = "any"

async def crawl(kind):
    try:
        ended = kind({"ADDONS": {"walsh_scrapy.Addon": 500}, **eval(sys.argv[1])}).crawl(Any)
        await (ended if kind is AsyncCrawlerRunner else ended.asFuture(asyncio.get_running_loop()))
    except Exception as error:
        print(type(error).__name__, error)

async def both():
    for kind in (AsyncCrawlerRunner, CrawlerRunner):
        await crawl(kind)

install(asyncio.new_event_loop())
asyncio.get_event_loop().run_until_complete(both())
"""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"WALSH_MIN_INTERVAL": 0.5}, "BadSetting WALSH_MIN_INTERVAL is 0.5, but"),
        ({"WALSH_SCOPE": "any", "LOG_LEVEL": "loud"}, "BadSetting LOG_LEVEL is 'loud'"),
        ({"WALSH_STATE_URL": "sqlite:////proc/none/x"}, "StateError "),
    ],
)
def test_an_application_catches_what_is_wrong_with_its_settings(installed, settings, told):
    given = {"WALSH_USER_AGENT": "Bot/1 (+https://bot.example/)", "WALSH_UA_TOKEN": "Bot"}
    given |= {"WALSH_BLOCKLIST_URL": "", "WALSH_SCOPE": "any"} | settings
    done = execute(sys.executable, "-c", WRONG, repr(given))
    assert [line.startswith(told) for line in done.stdout.splitlines()] == [True, True], done
    assert done.returncode == 0


def read(log):
    return sorted(line for line in log if line.startswith("WARNING read"))


def pages():
    return [Site(f"{host}.example", "", {"/": Reply("ok", delay=0.1)}) for host in "abcd"]


def test_crawls_run_one_after_the_other_in_loops_of_their_own(direct_web, tmp_path, installed):
    web = direct_web(*pages())
    log = run(web, tmp_path, "in turn")
    assert [f"WARNING read http://{host}.example/" for host in "abcd"] == read(log)
    judge(web, serial=True, user_agent="Example-Bot/1.0")


@pytest.mark.long
def test_a_crawl_beside_another_in_a_loop_of_its_own_is_refused(direct_web, tmp_path, installed):
    """The crawls that come after it are not."""
    web = direct_web(*pages())
    log = run(web, tmp_path, "beside")
    (refused,) = [line for line in log if line.startswith("CRITICAL")]
    assert "another event loop" in refused
    assert len(read(log)) == 6
    judge(web, serial=True, user_agent="Example-Bot/1.0")
