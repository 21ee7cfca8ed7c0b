"""The ``WALSH_`` settings, read once, checked, and typed: ``docs/settings.md`` in code."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

from scrapy.exceptions import NotConfigured
from scrapy.utils.project import data_path

from walsh_scrapy import identity

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_T = TypeVar("_T")
Scope: TypeAlias = Literal["declared", "any"]
PaceBy: TypeAlias = Literal["host", "domain"]
RobotsUnreachable: TypeAlias = Literal["allow", "disallow", "phased"]
Progress: TypeAlias = Literal["auto", "off"]

PREFIX = "WALSH_"
DAY_SECONDS = 86_400
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?|inf", re.IGNORECASE)
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class BadSetting(ValueError):
    """A setting that may not stand: which, what it is, and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Every choice an operator has; durations are seconds.

    Raises BadSetting from ``from_settings`` for a value out of bounds, an unknown ``WALSH_`` name,
    and for choices that only another bot's identity may make (decision 24).
    """

    enabled: bool
    user_agent: str
    ua_token: str
    blocklist_url: str
    blocklist_schema_url: str
    state_url: str
    min_interval: float
    serial: bool
    scope: Scope
    pace_by: PaceBy
    latency_factor: float
    max_wait: float
    robots_ttl: float
    robots_unreachable: RobotsUnreachable
    max_retries: int
    backoff_base: float
    backoff_max: float
    min_revisit: float
    sources: str
    progress: Progress

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Options:
        """Read and check every ``WALSH_`` setting of a Scrapy project."""
        _refuse_unknown_names(settings)
        read = _Reader(settings)
        user_agent = read.text("USER_AGENT", identity.USER_AGENT)
        ua_token = read.text("UA_TOKEN", identity.UA_TOKEN)
        ours = _is_ours(user_agent, ua_token)
        backoff_base = read.number("BACKOFF_BASE", 2.0, low=0.01, high=DAY_SECONDS)
        return cls(
            enabled=read.flag("ENABLED", default=True),
            user_agent=user_agent,
            ua_token=ua_token,
            blocklist_url=read.url("BLOCKLIST_URL", identity.BLOCKLIST_URL if ours else ""),
            blocklist_schema_url=read.url(
                "BLOCKLIST_SCHEMA_URL", identity.BLOCKLIST_SCHEMA_URL if ours else ""
            ),
            state_url=read.text("STATE_URL", "") or _default_state_url(),
            # An operator who asked Scrapy for a longer delay means this one.
            min_interval=max(
                read.number("MIN_INTERVAL", 1.0, low=1.0, high=DAY_SECONDS),
                number_of(settings, "DOWNLOAD_DELAY", 0.0, low=0.0, high=DAY_SECONDS),
            ),
            serial=_ours_alone(ours, "SERIAL", read.flag("SERIAL", default=True), fixed=True),
            scope=_ours_alone(
                ours, "SCOPE", read.choice("SCOPE", "declared", get_args(Scope)), fixed="declared"
            ),
            pace_by=read.choice("PACE_BY", "host", get_args(PaceBy)),
            latency_factor=read.number("LATENCY_FACTOR", 1.0, low=0.0, high=1000.0),
            max_wait=read.number("MAX_WAIT", 900.0, low=0.0, high=math.inf),
            robots_ttl=read.number("ROBOTS_TTL", DAY_SECONDS, low=1.0, high=DAY_SECONDS),
            robots_unreachable=read.choice(
                "ROBOTS_UNREACHABLE", "allow", get_args(RobotsUnreachable)
            ),
            max_retries=int(read.number("MAX_RETRIES", 4, low=0, high=20, whole=True)),
            backoff_base=backoff_base,
            backoff_max=read.number("BACKOFF_MAX", 300.0, low=backoff_base, high=30 * DAY_SECONDS),
            min_revisit=read.number("MIN_REVISIT", DAY_SECONDS, low=0.0, high=30 * DAY_SECONDS),
            sources=read.text("SOURCES", "sources.toml"),
            progress=read.choice("PROGRESS", "auto", get_args(Progress)),
        )

    @property
    def is_walsh_research(self) -> bool:
        """Whether this crawl speaks as the contract's own bot."""
        return self.ua_token == identity.UA_TOKEN


class _Reader:
    """Reads one setting at a time and names it in every complaint."""

    def __init__(self, settings: BaseSettings) -> None:
        self._settings = settings

    def _raw(self, name: str, default: object) -> object:
        value = self._settings.get(PREFIX + name)
        return default if value is None else value

    def text(self, name: str, default: str) -> str:
        value = self._raw(name, default)
        if not isinstance(value, str) or any(ord(character) < 32 for character in value):
            raise bad_setting(PREFIX + name, value, "a line of text")
        return value.strip()

    def url(self, name: str, default: str) -> str:
        value = self.text(name, default)
        if value:
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise bad_setting(PREFIX + name, value, "an http or https URL, or empty for none")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = str(self._raw(name, default)).strip().lower()
        if value not in _TRUE + _FALSE:
            raise bad_setting(PREFIX + name, value, "True or False")
        return value in _TRUE

    def choice(self, name: str, default: _T, choices: tuple[_T, ...]) -> _T:
        value = self._raw(name, default)
        for choice in choices:
            if value == choice:
                return choice
        raise bad_setting(PREFIX + name, value, " or ".join(f'"{choice}"' for choice in choices))

    def number(
        self, name: str, default: float, *, low: float, high: float, whole: bool = False
    ) -> float:
        return number_of(self._settings, PREFIX + name, default, low=low, high=high, whole=whole)


def number_of(
    settings: BaseSettings,
    name: str,
    default: float,
    *,
    low: float,
    high: float,
    whole: bool = False,
) -> float:
    """Read a number of any Scrapy setting. Raises BadSetting for what is none, or out of bounds."""
    value = settings.get(name)
    if value is None:
        return default
    bounds = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
    number = math.nan
    if isinstance(value, int | float) or _DECIMAL.fullmatch(str(value).strip()):
        number = float(value)
    if not low <= number <= high or (whole and number != int(number)):
        raise bad_setting(name, value, f"a {'whole ' if whole else ''}number {bounds}")
    return number


def _ours_alone(ours: bool, name: str, value: _T, *, fixed: _T) -> _T:
    if ours and value != fixed:
        raise bad_setting(
            PREFIX + name,
            value,
            f"{fixed!r} under the Walsh-Research identity; a bot with its own "
            f"{PREFIX}USER_AGENT and {PREFIX}UA_TOKEN may choose",
        )
    return value


def _is_ours(user_agent: str, ua_token: str) -> bool:
    """Check that the identity is whole: ours to the letter, or another bot's own (decision 24)."""
    if (user_agent, ua_token) == (identity.USER_AGENT, identity.UA_TOKEN):
        return True
    if not re.fullmatch(r"[A-Za-z_-]+", ua_token):
        raise bad_setting(
            PREFIX + "UA_TOKEN",
            ua_token,
            "a product token of letters, '_' and '-' (RFC 9309 2.2.1)",
        )
    if ua_token.lower() == identity.UA_TOKEN.lower():
        raise bad_setting(
            PREFIX + "USER_AGENT", user_agent, f"exactly {identity.USER_AGENT!r} (R1)"
        )
    if identity.UA_TOKEN.lower() in user_agent.lower() or ua_token not in user_agent:
        raise bad_setting(
            PREFIX + "USER_AGENT", user_agent, f"a line that holds your own token {ua_token!r}"
        )
    return False


def _refuse_unknown_names(settings: BaseSettings) -> None:
    known = [PREFIX + field.name.upper() for field in fields(Options)]
    for name in settings:
        if str(name).startswith(PREFIX) and name not in known and settings.get(name):
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {close[0]}?" if close else "; see docs/settings.md"
            raise BadSetting(f"{name} is no setting of walsh-scrapy{hint}")


def _default_state_url() -> str:
    try:
        path = data_path("walsh.sqlite3")
    except NotConfigured:  # outside a project, as in a script
        path = str(Path(".scrapy", "walsh.sqlite3").absolute())
    return f"sqlite:///{path}"


def bad_setting(name: str, value: object, wanted: str) -> BadSetting:
    """Return the complaint about a setting: which, what it is, and what it has to be."""
    return BadSetting(f"{name} is {value!r}, but has to be {wanted}")
