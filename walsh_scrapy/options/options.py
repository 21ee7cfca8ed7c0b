"""All ``WALSH_`` settings as one typed value, with the rules between them (decision 24)."""

from __future__ import annotations

import difflib
import math
import re
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar, get_args

from scrapy.exceptions import NotConfigured
from scrapy.utils.project import data_path

from walsh_scrapy import identity
from walsh_scrapy.options.reader import (
    PREFIX,
    BadSetting,
    SettingsReader,
    bad_setting,
    number_of,
)
from walsh_scrapy.policy.backoff import LEAST_CAP
from walsh_scrapy.policy.hosttimes import PaceBy

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_T = TypeVar("_T")
Scope: TypeAlias = Literal["declared", "any"]
RobotsUnreachable: TypeAlias = Literal["allow", "disallow", "phased"]
Progress: TypeAlias = Literal["auto", "off"]
LogFormat: TypeAlias = Literal["text", "json"]
SignatureForm: TypeAlias = Literal["dictionary", "string"]

_DAY_SECONDS: Final = 86_400
_OTHERS_MAY_CHOOSE: Final = (
    f"under the Walsh-Research identity; a bot with its own {PREFIX}USER_AGENT and "
    f"{PREFIX}UA_TOKEN may choose"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The ``WALSH_`` settings of a project, each under its name in lower case; times are seconds.

    `docs/settings.md` says what each of them means.
    """

    enabled: bool
    user_agent: str
    ua_token: str
    signing_key: str
    signature_agent: str
    signature_form: SignatureForm
    signature_lifetime: int
    blocklist_url: str
    blocklist_schema_url: str
    blocklist_file: str
    state_url: str
    min_interval: float
    serial: bool
    scope: Scope
    pace_by: PaceBy
    latency_factor: float
    max_wait: float
    connect_timeout: float
    max_idle_connections: int
    robots_ttl: float
    robots_unreachable: RobotsUnreachable
    max_retries: int
    backoff_base: float
    backoff_max: float
    min_revisit: float
    log_days: int
    adaptive: bool
    sources: str
    progress: Progress
    summary: str
    log_format: LogFormat

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Options:
        """Read and check every ``WALSH_`` setting of a Scrapy project.

        Raises BadSetting for a value of the wrong kind or out of bounds, an unknown ``WALSH_``
        name, an identity that is neither ours nor entirely another's, and for choices that are
        fixed under the Walsh-Research identity (decision 24).
        """
        _refuse_unknown_names(settings)
        read = SettingsReader(settings)
        user_agent = read.text("USER_AGENT", identity.USER_AGENT)
        ua_token = read.text("UA_TOKEN", identity.UA_TOKEN)
        ours = _is_ours(user_agent, ua_token)
        backoff_base = read.number("BACKOFF_BASE", 2.0, low=0.01, high=_DAY_SECONDS)
        max_retries = read.number("MAX_RETRIES", 4, low=0, high=20, whole=True)
        backoff_max = read.number("BACKOFF_MAX", 300.0, low=backoff_base, high=30 * _DAY_SECONDS)
        if ours:  # R5 wants a retry, and delays that grow and have jitter
            least = LEAST_CAP * backoff_base
            _require("MAX_RETRIES", max_retries >= 1, max_retries, "at least 1")
            wanted = f"at least {least:g} ({LEAST_CAP:g} times {PREFIX}BACKOFF_BASE)"
            _require("BACKOFF_MAX", backoff_max >= least, backoff_max, wanted)
        return cls(
            enabled=read.flag("ENABLED", default=True),
            user_agent=user_agent,
            ua_token=ua_token,
            signing_key=read.text("SIGNING_KEY", ""),
            signature_agent=_signature_agent(read),
            signature_form=read.choice("SIGNATURE_FORM", "dictionary", get_args(SignatureForm)),
            signature_lifetime=int(
                read.number("SIGNATURE_LIFETIME", 60, low=15, high=3600, whole=True)
            ),
            blocklist_url=_blocklist_url(read, ours=ours),
            blocklist_schema_url=read.url(
                "BLOCKLIST_SCHEMA_URL", identity.BLOCKLIST_SCHEMA_URL if ours else ""
            ),
            blocklist_file=read.text("BLOCKLIST_FILE", ""),
            state_url=read.text("STATE_URL", "") or _default_state_url(),
            # A longer delay that a project sets for Scrapy counts too.
            min_interval=max(
                read.number("MIN_INTERVAL", 1.0, low=1.0, high=_DAY_SECONDS),
                number_of(settings, "DOWNLOAD_DELAY", 0.0, low=0.0, high=_DAY_SECONDS),
            ),
            serial=_fixed_under_our_identity(
                ours, "SERIAL", read.flag("SERIAL", default=True), fixed=True
            ),
            scope=_fixed_under_our_identity(
                ours, "SCOPE", read.choice("SCOPE", "declared", get_args(Scope)), fixed="declared"
            ),
            pace_by=read.choice("PACE_BY", PaceBy.HOST, tuple(PaceBy)),
            latency_factor=read.number("LATENCY_FACTOR", 1.0, low=0.0, high=1000.0),
            max_wait=read.number("MAX_WAIT", 900.0, low=0.0, high=math.inf),
            connect_timeout=read.number("CONNECT_TIMEOUT", 10.0, low=0.1, high=60.0),
            max_idle_connections=int(
                read.number("MAX_IDLE_CONNECTIONS", 32, low=0, high=512, whole=True)
            ),
            robots_ttl=read.number("ROBOTS_TTL", _DAY_SECONDS, low=1.0, high=_DAY_SECONDS),
            robots_unreachable=read.choice(
                "ROBOTS_UNREACHABLE", "allow", get_args(RobotsUnreachable)
            ),
            max_retries=int(max_retries),
            backoff_base=backoff_base,
            backoff_max=backoff_max,
            min_revisit=read.number("MIN_REVISIT", _DAY_SECONDS, low=0.0, high=30 * _DAY_SECONDS),
            log_days=int(read.number("LOG_DAYS", 30, low=1, high=400, whole=True)),
            adaptive=read.flag("ADAPTIVE", default=False),
            sources=read.text("SOURCES", "sources.toml"),
            progress=read.choice("PROGRESS", "auto", get_args(Progress)),
            summary=_file(read, "SUMMARY"),
            log_format=log_format_of(settings),
        )

    @property
    def log_seconds(self) -> float:
        """How long requests and denials are kept."""
        return self.log_days * float(_DAY_SECONDS)

    @property
    def is_walsh_research(self) -> bool:
        """True if the crawl has the Walsh-Research identity (R1)."""
        return self.ua_token == identity.UA_TOKEN


def log_format_of(settings: BaseSettings) -> LogFormat:
    """Return ``WALSH_LOG_FORMAT`` alone: the log is set up before there is a crawl.

    Raises BadSetting for another value than "text" and "json".
    """
    return SettingsReader(settings).choice("LOG_FORMAT", "text", get_args(LogFormat))


def _fixed_under_our_identity(ours: bool, name: str, value: _T, *, fixed: _T) -> _T:
    if ours and value != fixed:
        raise bad_setting(PREFIX + name, value, f"{fixed!r} {_OTHERS_MAY_CHOOSE}")
    return value


def _require(name: str, holds: bool, value: float, wanted: str) -> None:
    if not holds:
        number = int(value) if value == int(value) else value
        raise bad_setting(PREFIX + name, number, f"{wanted} {_OTHERS_MAY_CHOOSE}")


def _blocklist_url(read: SettingsReader, *, ours: bool) -> str:
    """Return where the blocklist is; under our identity there always is one (decision 31)."""
    url = read.url("BLOCKLIST_URL", identity.BLOCKLIST_URL if ours else "")
    if ours and not url:
        raise bad_setting(
            PREFIX + "BLOCKLIST_URL",
            url,
            "the URL of a blocklist under the Walsh-Research identity, whose opt-outs cannot be "
            f"switched off (R3); a bot with its own {PREFIX}USER_AGENT and {PREFIX}UA_TOKEN may "
            "have none",
        )
    return url


def _signature_agent(read: SettingsReader) -> str:
    """Return where the directory of our keys is; with a key it has to be somewhere.

    Web Bot Auth allows https only, and the URL is signed as it stands.
    """
    url = read.url("SIGNATURE_AGENT", "")
    is_sound = url.startswith("https://") and url.isascii() and not set(url) & set(' "\\#@')
    if url and not is_sound:
        raise bad_setting(
            PREFIX + "SIGNATURE_AGENT", url, "an https URL of ASCII characters, without user name"
        )
    if not url and read.text("SIGNING_KEY", ""):
        raise bad_setting(
            PREFIX + "SIGNATURE_AGENT",
            url,
            f"the https URL at which your keys are published, because {PREFIX}SIGNING_KEY is set",
        )
    return url


def _file(read: SettingsReader, name: str) -> str:
    """Return the path of a file to write; empty for none."""
    path = read.text(name, "")
    if path and Path(path).is_dir():
        raise bad_setting(PREFIX + name, path, "the path of a file")
    return path


def _is_ours(user_agent: str, ua_token: str) -> bool:
    """Return True for the Walsh-Research identity, False for another bot's own (decision 24).

    Raises BadSetting for a mixture of both, or for a User-Agent without its product token.
    """
    if (user_agent, ua_token) == (identity.USER_AGENT, identity.UA_TOKEN):
        return True
    if not re.fullmatch(r"[A-Za-z_-]+", ua_token):
        raise bad_setting(
            PREFIX + "UA_TOKEN",
            ua_token,
            "a product token of letters, '_' and '-' (RFC 9309 2.2.1)",
        )
    if not (user_agent.isascii() and user_agent.isprintable()):
        raise bad_setting(
            PREFIX + "USER_AGENT", user_agent, "a line of printable ASCII characters (RFC 9110 5.5)"
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
        with suppress(FileExistsError):  # another process made the folder at the same moment
            data_path("")
        path = data_path("walsh.sqlite3")
    except NotConfigured:  # outside a project, as in a script
        path = str(Path(".scrapy", "walsh.sqlite3").absolute())
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F")
