"""pytest fixtures: a test web with or without a proxy, a crawl, and a clock that stands still.

To use them, add the first line to the conftest.py of your tests:

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
    """Runs crawls that keep their state in the test's folder. Call it, or use `start`."""

    def __init__(self, folder: Path, running: ExitStack, **defaults: Any) -> None:  # noqa: ANN401
        self.folder = folder
        self._defaults = {"folder": folder, **defaults}
        self._running = running

    def __call__(self, web: Web, spider: str = "feeds", **options: Any) -> CrawlResult:  # noqa: ANN401
        """Run a crawl to its end, with the options of `walsh_scrapy.testing.run_crawl`."""
        return run_crawl(web, spider, **self._defaults | options)

    def start(self, web: Web, spider: str = "feeds", **options: Any) -> Crawl:  # noqa: ANN401
        """Start a crawl and return at once. The crawl is killed when the test ends."""
        crawl = start_crawl(web, spider, **self._defaults | options)
        return self._running.enter_context(crawl)


@pytest.fixture
def walsh_loopback_web() -> Iterator[Callable[..., LoopbackWeb]]:
    """Return a function that takes sites, and serves them behind a proxy until the test ends."""
    yield from _serve(LoopbackWeb)


@pytest.fixture
def walsh_direct_web() -> Iterator[Callable[..., DirectWeb]]:
    """Return a function that takes sites, and serves each at its address until the test ends."""
    yield from _serve(DirectWeb)


def _serve(web_class: Callable[..., AnyWeb]) -> Iterator[Callable[..., AnyWeb]]:
    with ExitStack() as stack:

        def make(*sites: Site, **options: float) -> AnyWeb:
            web = web_class(*sites, **options)
            stack.enter_context(web)
            return web

        yield make


@pytest.fixture(scope="session")
def walsh_crawl_launcher() -> Launcher:
    """Return the function that starts the process of a crawl; override it to use another one."""
    return subprocess.Popen


@pytest.fixture
def walsh_crawl(
    tmp_path: Path, pytestconfig: pytest.Config, walsh_crawl_launcher: Launcher
) -> Iterator[CrawlFactory]:
    """Return a function that runs `scrapy crawl` of the project under test, state in tmp_path."""
    with ExitStack() as stack:
        defaults = {"project": pytestconfig.rootpath, "launcher": walsh_crawl_launcher}
        yield CrawlFactory(tmp_path / "crawl", stack, **defaults)


@pytest.fixture
def walsh_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the add-on off in a project's own crawls: no robots.txt is asked for, nothing waits.

    This is for tests from before the add-on. It holds in this process and in those that it starts,
    and outside of pytest the start is refused. Declared crawls ignore it.
    """
    monkeypatch.setenv("WALSH_NO_WAITING", "1")


@pytest.fixture
def walsh_fake_clock() -> FakeClock:
    """Return a clock that stands still at the beginning of 2026 until the test moves it."""
    return FakeClock()
