"""The peer of the benchmarks: a spider of plain Scrapy in a few lines, as many projects have it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from walsh_scrapy.testing.web import Web

SPIDER = """
import io
from pathlib import Path

import feedparser
import scrapy


class FeedsSpider(scrapy.Spider):
    name = "feeds"
    custom_settings = {
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": 1,
        "LOG_LEVEL": "INFO",
        "USER_AGENT": "Peer/1.0",
    }

    async def start(self):
        for url in Path("urls.txt").read_text().split():
            yield scrapy.Request(url)

    def parse(self, response):
        parsed = feedparser.parse(
            io.BytesIO(response.body),
            response_headers={"content-location": response.url},
        )
        for entry in parsed.entries:
            yield {
                "source": response.url,
                "title": entry.get("title"),
                "url": entry.get("link"),
                "id": entry.get("id"),
                "published": entry.get("published"),
            }
"""
#: Settings for a delay of one second between two requests to a host.
POLITE = {"DOWNLOAD_DELAY": 1, "DOWNLOAD_DELAY_JITTER": 0}


def run_peer(
    web: Web,
    folder: Path,
    urls: Sequence[str],
    settings: Mapping[str, object] | None = None,
    timeout: float = 1800.0,
) -> tuple[int | None, int]:
    """Run the peer; return its exit status (None after ``timeout`` seconds) and number of items."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peer.py").write_text(SPIDER)
    (folder / "urls.txt").write_text("\n".join(urls))
    command = [
        sys.executable,
        "-m",
        "scrapy",
        "runspider",
        "peer.py",
        "-O",
        "items.jsonl",
    ]
    for name, value in (settings or {}).items():
        command += ["-s", f"{name}={value}"]
    environment = os.environ | web.environment
    code: int | None = None
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stderr=log) as process,
    ):
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
    items = folder / "items.jsonl"
    return code, len(items.read_bytes().splitlines()) if items.exists() else 0
