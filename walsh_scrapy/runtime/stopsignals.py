"""SIGTERM, SIGINT and SIGHUP end a crawl in order, from its first moment to its last."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

#: SIGHUP comes when a terminal is closed; not every system has it.
_NAMES: Final = ("SIGTERM", "SIGINT", "SIGHUP")
_SIGNALS: Final = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))

#: What handles the first signal; Scrapy then puts what handles the second in its place.
_in_order: Any = None


def is_stopping() -> bool:
    """Return True once a signal has come, also while the event loop stands still."""
    return _in_order is not None and signal.getsignal(signal.SIGTERM) != _in_order


def listen(crawler: Crawler) -> None:
    """Hold the signals that end a crawl back until its engine has started, which takes a moment.

    Scrapy stops its event loop at once for a signal in that moment, while the engine sends its
    first request: there is no summary then, and a host stays leased. Afterwards SIGHUP does what
    SIGTERM does. One that comes while the crawl ends is ignored, because a service manager sends
    both, and Scrapy takes the second signal as the order to end without order.
    """
    if sys.platform == "win32":
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    crawler.signals.connect(_let_through, signal=signals.engine_started)


def _let_through() -> None:
    if sys.platform == "win32":
        return
    global _in_order  # noqa: PLW0603 - as what handles a signal, it is one for the process
    _in_order = signal.getsignal(signal.SIGTERM)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # under nohup it is ignored
        signal.signal(signal.SIGHUP, _hang_up)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _hang_up(*_: object) -> None:
    if not is_stopping():
        signal.raise_signal(signal.SIGTERM)
