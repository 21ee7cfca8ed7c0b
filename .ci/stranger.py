"""Uses an installed walsh-scrapy as a stranger does: ``python -I .ci/stranger.py``.

Its Python has the wheel and no checkout. The programs run in an empty folder, against a server on
this machine: in a new project of ``walsh init``, and in another project with the add-on.
"""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

VERSION = version("walsh-scrapy")
BIN = Path(sys.executable).parent
AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)"
PROJECT = {
    "scrapy.cfg": "[settings]\ndefault = theirs\n",
    "theirs.py": f"""
ADDONS = {{"walsh_scrapy.Addon": 500}}
USER_AGENT = "{AGENT}"
SPIDER_MODULES = ["pages"]
""",
    "pages.py": """
from scrapy import Spider


class PagesSpider(Spider):
    name = "pages"

    def __init__(self, urls, **arguments):
        super().__init__(**arguments)
        self.start_urls = urls.split()

    def parse(self, response):
        yield {"url": response.url}
""",
}
FEED = b"""<rss version="2.0"><channel><title>Feed</title>
<item><title>One</title><link>http://blog.example/1</link></item></channel></rss>"""
ROBOTS = "User-agent: *\nDisallow: /private\n"


class Site(BaseHTTPRequestHandler):
    """A server with a page, a feed and a robots.txt; it remembers who asked for what."""

    asked: list[tuple[str, str]] = []

    def do_GET(self):
        self.asked.append((self.path, self.headers["User-Agent"]))
        self.send_response(200)
        self.end_headers()
        bodies = {"/robots.txt": ROBOTS.encode(), "/feed": FEED}
        self.wfile.write(bodies.get(self.path, b"a page"))

    def log_message(self, *_):
        """Print nothing."""


def run(folder, program, *arguments, status=0, given=None):
    """Run a program of the environment; return what it printed. Exits if its status is wrong."""
    command = [BIN / program, *arguments]
    done = subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != status:
        sys.exit(f"{program} {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def begin(folder, root):
    """Write a project with ``walsh init``, declare a feed of the server, crawl it, and export."""
    run(folder, "walsh", "init", "new")
    run(folder, "walsh", "init", "new", status=1)
    project = folder / "new"
    run(project, "scrapy", "crawl", "feeds", status=1)
    assert not Site.asked, "it has no identity yet"
    with (project / "settings.py").open("a", encoding="utf-8") as settings:
        settings.write(f'WALSH_USER_AGENT = "{AGENT}"\nWALSH_UA_TOKEN = "Example-Bot"\n')
    (project / "sources.toml").write_text(f'[[source]]\nurl = "{root}/feed"\n', "utf-8")
    run(project, "scrapy", "crawl", "feeds")
    assert '"One"' in run(project, "walsh", "export", "-o", "-")
    assert Site.asked == [("/robots.txt", AGENT), ("/feed", AGENT)], Site.asked
    Site.asked.clear()


def main():
    """Exit with a line that says what is wrong, if anything is."""
    server = HTTPServer(("127.0.0.1", 0), Site)
    Thread(target=server.serve_forever, daemon=True).start()
    with TemporaryDirectory() as name:
        folder = Path(name)
        assert run(folder, "walsh", "--version") == f"walsh-scrapy {VERSION}\n"
        private = ["mayfetch", "--robots", "-", "https://a.example/private"]
        run(folder, "walsh", *private, given=ROBOTS, status=1)
        root = f"http://127.0.0.1:{server.server_port}"
        begin(folder, root)
        for file, text in PROJECT.items():
            (folder / file).write_text(text, "utf-8")
        urls = f"{root}/open {root}/private"
        crawl = ["crawl", "pages", "-a", f"urls={urls}", "-O", "items.jsonl"]
        run(folder, "scrapy", *crawl)
        items = (folder / "items.jsonl").read_text("utf-8").splitlines()
        assert [json.loads(line) for line in items] == [{"url": f"{root}/open"}], items
    assert Site.asked == [("/robots.txt", AGENT), ("/open", AGENT)], Site.asked


if __name__ == "__main__":
    main()
