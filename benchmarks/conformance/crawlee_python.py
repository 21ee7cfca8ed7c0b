"""crawlee for Python with its polite options; with `throttled` behind ThrottlingRequestManager.

Documented at https://crawlee.dev/python/docs/guides/scaling-crawlers and
https://crawlee.dev/python/docs/examples/respect-robots-txt-file.
"""

import asyncio
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from crawlee import ConcurrencySettings
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.proxy_configuration import ProxyConfiguration
from crawlee.request_loaders import ThrottlingRequestManager
from crawlee.storages import RequestQueue

os.environ["CRAWLEE_STORAGE_DIR"] = os.environ["CONFORMANCE_FOLDER"]


async def log_url(context: HttpCrawlingContext) -> None:
    context.log.info(context.request.url)


async def main(seeds: list[str]) -> None:
    proxy = os.environ.get("CONFORMANCE_PROXY")
    options = {}
    if sys.argv[1:] == ["throttled"]:
        options["request_manager"] = ThrottlingRequestManager(
            inner=await RequestQueue.open(),
            domains=sorted({urlsplit(url).hostname or "" for url in seeds}),
            request_manager_opener=RequestQueue.open,
        )
    crawler = HttpCrawler(
        respect_robots_txt_file=True,
        concurrency_settings=ConcurrencySettings(
            max_concurrency=1, desired_concurrency=1, max_tasks_per_minute=60
        ),
        proxy_configuration=ProxyConfiguration(proxy_urls=[proxy]) if proxy else None,
        request_handler=log_url,
        **options,
    )
    await crawler.run(seeds)


asyncio.run(main(Path(os.environ["CONFORMANCE_SEEDS"]).read_text("utf-8").split()))
