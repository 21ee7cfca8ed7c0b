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
    await AsyncCrawlerRunner(SETTINGS).crawl(Listed, **arguments)

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
