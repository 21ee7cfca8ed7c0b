"""The delays that a project asks Scrapy for. Of all delays of a host the longest one is kept.

So the add-on never makes a project less polite. In a project's own crawl the delay for all hosts is
the one that Scrapy would use, and replaces ``WALSH_MIN_INTERVAL`` (decision 3). The state does not
store these delays, because they are a choice of the project, and crawls of other projects share the
state.
"""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING, Any, Final

from scrapy.settings import BaseSettings

from walsh_scrapy.options import (
    DAY_SECONDS,
    ForcedSetting,
    checked_number,
    number_of,
    values_of,
)
from walsh_scrapy.policy.urls import host_of, parse_ip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy import Spider

logger = logging.getLogger(__name__)

_DELAY: Final = "DOWNLOAD_DELAY"
_SLOTS: Final = "DOWNLOAD_SLOTS"
_HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NO_HOST: Final = re.compile(r"[/\\?#@\s]")


def longest_delays(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return the longer one of two delays for each host that has a delay, in seconds."""
    return dict(first) | {host: max(delay, first.get(host, 0.0)) for host, delay in second.items()}


class ProjectDelays:
    """The delay of each host, in seconds, by the settings and the spider of a project.

    ``unit_of`` takes a host, and returns the unit that is paced: the host or its domain. ``is_own``
    is True for a project's own crawl. Raises BadSetting for a delay that is no number of seconds up
    to a day.
    """

    def __init__(
        self,
        settings: BaseSettings,
        spider: Spider | type[Spider] | None,
        unit_of: Callable[[str], str],
        *,
        is_own: bool = False,
    ) -> None:
        self._spider = spider
        # Without the add-on the setting has to be 0, and chooses nothing.
        self._is_own = is_own and isinstance(settings.attributes.get(_DELAY), ForcedSetting)
        if self._is_own:  # the first value is the one of the highest priority
            values = values_of(settings, _DELAY)[:1]
        else:
            values = _values(settings, spider, _DELAY)
        delays = [_seconds(_DELAY, value) for value in values]
        self._everywhere = max(delays, default=0.0)
        self._is_set = bool(delays)
        self._by_host: dict[str, float] = {}
        nameless: list[str] = []
        for slot, seconds in _slots(settings, spider):
            host = _host_of_slot(slot)
            if seconds and not _is_certain(host):
                nameless.append(repr(slot))
            if host:
                unit = unit_of(host)
                self._by_host[unit] = max(seconds, self._by_host.get(unit, 0.0))
        if nameless:
            logger.warning(
                "DOWNLOAD_SLOTS: the delay of %s is ignored, unless a host has that name: this "
                "add-on gives each request the slot of its host. Name slots after hosts",
                ", ".join(dict.fromkeys(nameless)),
            )
        self._start_delay, self._throttle = _throttle_of(settings)
        self._has_page: set[str] = set()  # hosts
        self._longest_answer = self._throttle * settings.getfloat("DOWNLOAD_TIMEOUT")

    @property
    def longest(self) -> float:
        """The longest delay that any host may have."""
        throttled = max(self._start_delay, self._longest_answer)
        return max(self._of_all_hosts, throttled, *self._by_host.values())

    def minimum(self, min_interval: float) -> float:
        """Return the delay of every host that does not ask for more, as the state may store it.

        It is ``WALSH_MIN_INTERVAL``, or less if the project chose less in its own crawl.
        """
        return min_interval if self._chosen is None else min(self._chosen, min_interval)

    @property
    def latency_factor(self) -> float:
        """By how much the seconds of the last answer of a host are multiplied for its delay.

        0 means that they do not count.
        """
        return self._throttle or float(self._chosen is None)

    @property
    def _of_all_hosts(self) -> float:
        if self._is_own:
            return self._chosen or 0.0
        return max(self._everywhere, self._spider_delay)

    @property
    def _chosen(self) -> float | None:
        """The delay that Scrapy would use in a project's own crawl; None if it is not set."""
        if not self._is_own:
            return None
        if getattr(self._spider, "download_delay", None) is not None:
            return self._spider_delay
        return self._everywhere if self._is_set else None

    def delay_of(self, host: str) -> float:
        """Return the delay of a host, or of the domain that is paced, without its last answer."""
        start_delay = 0.0 if host in self._has_page else self._start_delay
        return max(self._of_all_hosts, self._by_host.get(host, 0.0), start_delay)

    def record_page(self, host: str) -> None:
        """Note that a page came from a host, which ends AutoThrottle's start delay.

        Other answers may be much quicker than pages.
        """
        if self._start_delay:
            self._has_page.add(host)

    @property
    def _spider_delay(self) -> float:
        """The attribute of the spider, which may set it at any time."""
        value = getattr(self._spider, "download_delay", None)
        return 0.0 if value is None else _seconds("download_delay", value)


def _throttle_of(settings: BaseSettings) -> tuple[float, float]:
    """Return the start delay of a project's AutoThrottle, and what an answer's time counts.

    Both are 0 if Scrapy would not start it. It is off, but a crawl must not become less polite.
    """
    values = values_of(settings, "AUTOTHROTTLE_ENABLED")
    is_enabled = any(BaseSettings({"value": value}).getbool("value") for value in values)
    name = "AUTOTHROTTLE_TARGET_CONCURRENCY"
    concurrency = number_of(settings, name, 1.0, low=-math.inf, high=math.inf)
    if not is_enabled or concurrency <= 0.0:
        return 0.0, 0.0
    start_delay = number_of(settings, "AUTOTHROTTLE_START_DELAY", 5.0, low=0.0, high=DAY_SECONDS)
    return start_delay, max(1.0, 1.0 / concurrency)


def _values(settings: BaseSettings, spider: Spider | type[Spider] | None, name: str) -> list[Any]:
    """Return all values of a setting: the command line does not hide the value of the spider."""
    values = values_of(settings, name)
    values.append((getattr(spider, "custom_settings", None) or {}).get(name))
    return [value for value in values if value is not None]


def _slots(
    settings: BaseSettings, spider: Spider | type[Spider] | None
) -> Iterator[tuple[str, float]]:
    """Yield the name of each slot that has a delay, and its seconds."""
    for value in _values(settings, spider, _SLOTS):
        for slot, parameters in BaseSettings({_SLOTS: value}).getdict(_SLOTS).items():
            if "delay" in parameters:
                yield slot, _seconds(f"{_SLOTS}[{slot!r}]['delay']", parameters["delay"])


def _seconds(name: str, value: object) -> float:
    return checked_number(name, value, 0.0, DAY_SECONDS)


def _host_of_slot(slot: str) -> str:
    """Return the host that a slot is named after; empty if its name cannot be one of a host."""
    if ":" in slot:
        return host_of(f"http://[{slot}]/") if parse_ip(slot) else ""
    host = host_of(f"http://{slot}/")
    return host if _HOST.fullmatch(host) and not _NO_HOST.search(slot) else ""


def _is_certain(host: str) -> bool:
    """Return False for a name without a dot: it may be one of a host, or of anything else."""
    return "." in host or ":" in host or host == "localhost"
