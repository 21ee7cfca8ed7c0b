"""pytest fixtures: a web with or without a proxy, a crawl of it, a clock that stands still.

A project asks for them in the conftest.py of its tests:

    pytest_plugins = ["walsh_scrapy.testing.plugin"]

    def test_blog(walsh_loopback_web, walsh_crawl):
        feed = rss("Blog", [Post("One")])
        web = walsh_loopback_web(Site("blog.example", pages={"/feed.xml": feed}))
        result = walsh_crawl(web, sources=["http://blog.example/feed.xml"])
        assert_polite(result.log)
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from walsh_scrapy.testing.crawl import run_crawl, start_crawl
from walsh_scrapy.testing.directweb import DirectWeb
from walsh_scrapy.testing.simulation import FakeClock
from walsh_scrapy.testing.web import LoopbackWeb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from walsh_scrapy.testing.crawl import Crawl, CrawlResult, Launcher
    from walsh_scrapy.testing.web import Site, Web

AnyWeb = TypeVar("AnyWeb", bound="Web")


class CrawlFactory:
    """Runs crawls whose state is in the test's folder; `start` returns a running one."""

    def __init__(self, folder: Path, running: ExitStack, **defaults: Any) -> None:  # noqa: ANN401
        self.folder = folder
        self._defaults = {"folder": folder, **defaults}
        self._running = running

    def __call__(self, web: Web, spider: str = "feeds", **options: Any) -> CrawlResult:  # noqa: ANN401
        """Run a crawl to its end: `walsh_scrapy.testing.crawl.run_crawl`."""
        return run_crawl(web, spider, **self._defaults | options)

    def start(self, web: Web, spider: str = "feeds", **options: Any) -> Crawl:  # noqa: ANN401
        """Start a crawl, which is killed at the end of the test at the latest."""
        crawl = start_crawl(web, spider, **self._defaults | options)
        return self._running.enter_context(crawl)


@pytest.fixture
def walsh_loopback_web() -> Iterator[Callable[..., LoopbackWeb]]:
    """Return a function from sites to a web that serves them until the end of the test."""
    yield from _served(LoopbackWeb)


@pytest.fixture
def walsh_direct_web() -> Iterator[Callable[..., DirectWeb]]:
    """Return a function like that of `walsh_loopback_web`, to a web without a proxy."""
    yield from _served(DirectWeb)


def _served(kind: Callable[..., AnyWeb]) -> Iterator[Callable[..., AnyWeb]]:
    with ExitStack() as stack:

        def make(*sites: Site, **options: float) -> AnyWeb:
            web = kind(*sites, **options)
            stack.enter_context(web)
            return web

        yield make


@pytest.fixture(scope="session")
def walsh_crawl_launcher() -> Launcher:
    """Return the function that starts the process of a crawl; override it for another launcher."""
    return subprocess.Popen


@pytest.fixture
def walsh_crawl(
    tmp_path: Path, pytestconfig: pytest.Config, walsh_crawl_launcher: Launcher
) -> Iterator[CrawlFactory]:
    """Return a function that runs `scrapy crawl` of the project under test, state in tmp_path."""
    with ExitStack() as stack:
        given = {"project": pytestconfig.rootpath, "launcher": walsh_crawl_launcher}
        yield CrawlFactory(tmp_path / "crawl", stack, **given)


@pytest.fixture
def walsh_fake_clock() -> FakeClock:
    """Return a clock that stands at the beginning of 2026 until it is moved."""
    return FakeClock()
