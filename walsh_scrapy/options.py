"""The ``WALSH_`` settings of a project as one typed value, and their checks.

`docs/settings.md` describes them.
"""

# ruff: noqa: RUF009 - a field is not a default that instances share
from __future__ import annotations

import difflib
import math
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from scrapy.exceptions import NotConfigured
from scrapy.settings import SettingsAttribute
from scrapy.utils.project import data_path

from walsh_scrapy import identity
from walsh_scrapy.policy.backoff import LEAST_CAP
from walsh_scrapy.policy.pacing import PaceBy
from walsh_scrapy.policy.robots.robotstxt import token_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

PREFIX: Final = "WALSH_"

Scope: TypeAlias = Literal["declared", "any"]
RobotsUnreachable: TypeAlias = Literal["allow", "disallow", "phased"]
Progress: TypeAlias = Literal["auto", "off"]
LogFormat: TypeAlias = Literal["text", "json"]
SignatureForm: TypeAlias = Literal["dictionary", "string"]

DAY_SECONDS: Final = 86_400
_UNRECORDED: Final = ("state_url", "signing_key")
_OTHERS_MAY_CHOOSE: Final = (
    f"under the Walsh-Research identity; set your own {PREFIX}USER_AGENT and {PREFIX}UA_TOKEN to "
    "choose"
)
#: A bot with its own identity has no blocklist unless it names one, and obeys RFC 9309 2.3.1.4.
_DEFAULTS_OF_OTHERS: Final = {
    "blocklist_url": "",
    "blocklist_schema_url": "",
    "robots_unreachable": "phased",
}
_WHERE_KEYS_ARE: Final = (
    f"the https URL at which your keys are published, because {PREFIX}SIGNING_KEY is set"
)
_NO_IDENTITY: Final = (
    "the project has no identity, and no request is sent without one; set {} in its settings"
)
_NOT_IN_TOKEN: Final = re.compile("[^A-Za-z_-]")
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?|inf", re.IGNORECASE
)
# Controls, and the surrogates that stand for bytes of a command line that are not UTF-8.
_NO_TEXT: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


class BadSetting(ValueError):
    """A setting has a value that is refused; the message has the right value."""


class WrongArgument(BadSetting):
    """An argument of a spider (``-a NAME=VALUE``) is refused; the message has the right one."""


def bad_setting(name: str, value: object, expected: str) -> BadSetting:
    """Return the error for a setting; ``expected`` completes "must be"."""
    return BadSetting(f"{name} is {value!r:.300}, but must be {expected}")


def number_of(
    settings: BaseSettings, name: str, default: float, *, low: float, high: float
) -> float:
    """Return the number in any Scrapy setting, or ``default`` if that is None or not set.

    Raises BadSetting for a value that is not a number from ``low`` to ``high``.
    """
    value = settings.get(name)
    return default if value is None else checked_number(name, value, low, high)


class ForcedSetting(SettingsAttribute):
    """The value of a setting that nobody else can change.

    ``ignored`` has the values that others set. ``report`` is called with each of them.
    """

    def __init__(self, value: object, priority: int, report: Callable[[Any], None]) -> None:
        super().__init__(value, priority)
        self.ignored: list[Any] = []
        self._report = report

    def set(self, value: Any, priority: int) -> None:  # noqa: ANN401, ARG002 - as Scrapy has it
        """Keep the forced value, whatever the priority of the other value is."""
        self.ignored.append(value)
        self._report(value)


def values_of(settings: BaseSettings, name: str) -> list[Any]:
    """Return the values of a setting that the add-on forces: all that are ignored, or its own."""
    attribute = settings.attributes.get(name)
    return list(attribute.ignored) if isinstance(attribute, ForcedSetting) else [settings.get(name)]


# Each of these functions returns the value of a setting. It raises BadSetting for a value of the
# wrong type, or out of bounds.


def checked_number(
    name: str, value: object, low: float, high: float, kind: str = "number"
) -> float:
    """Return a value as a number from ``low`` to ``high``; raises BadSetting for any other."""
    bounds = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
    number = math.nan
    if isinstance(value, int | float) or _DECIMAL.fullmatch(str(value).strip()):
        with suppress(OverflowError):  # an int of 400 digits
            number = float(value)  # type: ignore[arg-type]
    if not low <= number <= high:
        raise bad_setting(name, value, f"a {kind} {bounds}")
    return number


def _whole(name: str, value: object, low: int, high: int) -> int:
    kind = "whole number"
    number = checked_number(name, value, low, high, kind)
    if number != int(number):
        raise bad_setting(name, value, f"a {kind} from {low} to {high}")
    return int(number)


def _line(name: str, value: object) -> str:
    """Return a stripped line of text, which has no control characters and no broken bytes."""
    if not isinstance(value, str) or _NO_TEXT.search(value):
        raise bad_setting(name, value, "a line of text")
    return value.strip()


def _state_url(name: str, value: object) -> str:
    """Return a line of text. A bad value is not shown, because it may have a password."""
    try:
        return _line(name, value)
    except BadSetting:
        raise BadSetting(f"{name} must be a line of text") from None


def _url(name: str, value: object) -> str:
    """Return an http or https URL without user name and password, or an empty string."""
    url = _line(name, value)
    if not url:
        return url
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_user = parts.username is not None
    except ValueError:  # "http://[bad"
        is_web = False
        has_user = "@" in url
    if has_user:  # the URL is not shown, because it may have a password
        raise BadSetting(f"{name} has a user name or password, which is never sent; remove it")
    if not is_web:
        raise bad_setting(name, url, "an http or https URL")
    return url


def _key_url(name: str, value: object) -> str:
    """Return the URL of the keys: https (Web Bot Auth), and unchanged, because it is signed."""
    url = _url(name, value)
    is_usable = url.startswith("https://") and url.isascii() and not set(url) & set(' "\\#@')
    if url and not is_usable:
        raise bad_setting(name, url, "an https URL of ASCII characters, without user name")
    return url


def _flag(name: str, value: object) -> bool:
    """Return a truth value; on the command line it may be written as 1, true, yes or on."""
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise bad_setting(name, value, "True or False")
    return text in _TRUE


def _choice(name: str, value: object, *choices: str) -> str:
    for choice in choices:
        if value == choice:
            return choice
    raise bad_setting(name, value, " or ".join(f'"{choice}"' for choice in choices))


def _setting(default: object, check: Callable[..., object], *arguments: object) -> Any:  # noqa: ANN401 - as field
    """Return the field of a setting; ``check`` gets its name, its value and ``arguments``."""
    return field(default=default, metadata={"check": check, "arguments": arguments})


def _project_state() -> str:
    """Return the URL of the state in the project's folder for data. Raises BadSetting."""
    try:
        with suppress(FileExistsError):  # another process made the folder at the same moment
            data_path("")
        path = data_path("walsh.sqlite3")
    except NotConfigured:  # outside a project, as in a script
        path = str(Path(".scrapy", "walsh.sqlite3").absolute())
    except OSError as error:
        raise BadSetting(
            f"the state cannot be in {error.filename}, the project's folder for data: "
            f"{error.strerror}; make that folder, or set WALSH_STATE_URL to another place"
        ) from None
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The ``WALSH_`` settings of a project, each under its name in lower case; times are seconds.

    `docs/settings.md` explains each of them.
    """

    enabled: bool = _setting(True, _flag)
    user_agent: str = _setting(identity.USER_AGENT, _line)
    ua_token: str = _setting(identity.UA_TOKEN, _line)
    signing_key: str = _setting("", _line)
    signature_agent: str = _setting("", _key_url)
    signature_form: SignatureForm = _setting("dictionary", _choice, *get_args(SignatureForm))
    blocklist_url: str = _setting(identity.BLOCKLIST_URL, _url)
    blocklist_schema_url: str = _setting(identity.BLOCKLIST_SCHEMA_URL, _url)
    blocklist_file: str = _setting("", _line)
    state_url: str = _setting("", _state_url)
    min_interval: float = _setting(1.0, checked_number, 1.0, DAY_SECONDS)
    serial: bool = _setting(True, _flag)
    scope: Scope = _setting("declared", _choice, *get_args(Scope))
    pace_by: PaceBy = _setting(PaceBy.HOST, _choice, *PaceBy)
    max_wait: float = _setting(900.0, checked_number, 0.0, math.inf)
    robots_ttl: float = _setting(DAY_SECONDS, checked_number, 1.0, DAY_SECONDS)
    robots_unreachable: RobotsUnreachable = _setting("allow", _choice, *get_args(RobotsUnreachable))
    max_retries: int = _setting(4, _whole, 0, 20)
    backoff_base: float = _setting(2.0, checked_number, 0.01, DAY_SECONDS)
    backoff_max: float = _setting(300.0, checked_number, 0.01, 30 * DAY_SECONDS)
    min_revisit: float = _setting(DAY_SECONDS, checked_number, 0.0, 30 * DAY_SECONDS)
    log_days: int = _setting(30, _whole, 1, 400)
    sources: str = _setting("sources.toml", _line)
    progress: Progress = _setting("auto", _choice, *get_args(Progress))
    log_format: LogFormat = _setting("text", _choice, *get_args(LogFormat))

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Options:
        """Read and check every ``WALSH_`` setting of a Scrapy project.

        Raises BadSetting for a value of the wrong type or out of bounds, for an unknown ``WALSH_``
        name, and for an identity that is empty or mixes both bots. The Walsh-Research identity has
        rules that other bots may choose: it is refused with settings that break them.
        """
        _check_names(settings)
        values = {name: _read_setting(settings, name) for name in _FIELDS}
        if not (values["user_agent"] and values["ua_token"]):
            raise BadSetting(_NO_IDENTITY.format(" and ".join(proposed_identity(settings))))
        is_walsh_research = _check_identity(values["user_agent"], values["ua_token"])
        if not is_walsh_research:
            values |= {
                name: default
                for name, default in _DEFAULTS_OF_OTHERS.items()
                if settings.get(PREFIX + name.upper()) is None
            }
        name = PREFIX + "BACKOFF_MAX"
        maximum = 30.0 * DAY_SECONDS
        number_of(settings, name, maximum, low=values["backoff_base"], high=maximum)
        values["state_url"] = values["state_url"] or _project_state()
        if values["signing_key"] and not values["signature_agent"]:
            raise bad_setting(PREFIX + "SIGNATURE_AGENT", "", _WHERE_KEYS_ARE)
        options = cls(**values)
        if is_walsh_research:
            _check_walsh_research(options)
        return options

    def for_record(self) -> dict[str, Any]:
        """Return the options as JSON has them: an infinite time is "inf".

        ``state_url`` may have a password, and ``signing_key`` names a secret: both are omitted.
        """
        values = {name: value for name, value in asdict(self).items() if name not in _UNRECORDED}
        return {name: str(value) if value == math.inf else value for name, value in values.items()}

    @property
    def log_seconds(self) -> float:
        """The seconds for which requests and denials are kept."""
        return self.log_days * float(DAY_SECONDS)

    @property
    def is_walsh_research(self) -> bool:
        """True if the crawl has the Walsh-Research identity (R1)."""
        return self.ua_token == identity.UA_TOKEN


_FIELDS: Final = {setting.name: setting for setting in fields(Options)}


def _read_setting(settings: BaseSettings, name: str) -> Any:  # noqa: ANN401 - of the type of its field
    """Return the checked value of a setting; the default for None."""
    setting = _FIELDS[name]
    full_name = PREFIX + name.upper()
    value = settings.get(full_name)
    if value is None:
        value = setting.default
    return setting.metadata["check"](full_name, value, *setting.metadata["arguments"])


def log_format_of(settings: BaseSettings) -> LogFormat:
    """Return ``WALSH_LOG_FORMAT`` alone, because the log is set up before there is a crawl.

    Raises BadSetting for a value other than "text" and "json".
    """
    log_format: LogFormat = _read_setting(settings, "log_format")
    return log_format


def proposed_identity(settings: BaseSettings) -> list[str]:
    """Return the lines that give a project its own identity, from its ``USER_AGENT``.

    Without a ``USER_AGENT`` the lines have its ``BOT_NAME``, and a URL to fill in.
    """
    has_agent = (settings.getpriority("USER_AGENT") or 0) > 0
    agent = str(settings["WALSH_USER_AGENT"] or (settings["USER_AGENT"] if has_agent else ""))
    token = settings["WALSH_UA_TOKEN"] or token_of(agent)
    if not token or token not in agent or identity.UA_TOKEN.lower() in agent.lower():
        token = token or _NOT_IN_TOKEN.sub("", str(settings["BOT_NAME"])) or "Your-Bot"
        agent = f"{token}/1.0 (+https://your.page.example/)"
    return [f'WALSH_USER_AGENT = "{agent}"', f'WALSH_UA_TOKEN = "{token}"']


def _check_walsh_research(options: Options) -> None:
    """Raise BadSetting for settings that break a rule of the Walsh-Research bot.

    The bot retries at least once, with delays that grow and have jitter (R5), and always has a
    blocklist, because nobody may switch off its opt-outs (R3).
    """
    min_backoff = LEAST_CAP * options.backoff_base
    for name, value, holds, expected in (
        ("MAX_RETRIES", options.max_retries, options.max_retries >= 1, "at least 1"),
        (
            "BACKOFF_MAX",
            options.backoff_max,
            options.backoff_max >= min_backoff,
            f"at least {min_backoff:g} ({LEAST_CAP:g} times {PREFIX}BACKOFF_BASE)",
        ),
        ("SERIAL", options.serial, options.serial, "True"),
        ("SCOPE", options.scope, options.scope == "declared", "'declared'"),
        (
            "BLOCKLIST_URL",
            options.blocklist_url,
            bool(options.blocklist_url),
            "the URL of a blocklist, because nobody may switch off its opt-outs,",
        ),
    ):
        if not holds:
            raise bad_setting(PREFIX + name, value, f"{expected} {_OTHERS_MAY_CHOOSE}")


def _check_identity(user_agent: str, ua_token: str) -> bool:
    """Return True for the Walsh-Research identity, False for the identity of another bot.

    Raises BadSetting for a mixture of both, or for a User-Agent without its product token.
    """
    if (user_agent, ua_token) == (identity.USER_AGENT, identity.UA_TOKEN):
        return True
    if match := _NOT_IN_TOKEN.search(ua_token):
        name = ua_token.partition("/")[0]
        proposed = _NOT_IN_TOKEN.sub("", name) or "Your-Bot"
        raise BadSetting(
            f"{PREFIX}UA_TOKEN is {ua_token!r:.300}, but {match[0]!r} is not allowed: a name in "
            "robots.txt has letters, '_' and '-' only (RFC 9309 2.2.1); use for example "
            f"{proposed!r}, also in {PREFIX}USER_AGENT"
        )
    if not (user_agent.isascii() and user_agent.isprintable()):
        expected = "a line of printable ASCII characters (RFC 9110 5.5)"
    elif ua_token.lower() == identity.UA_TOKEN.lower():
        expected = f"exactly {identity.USER_AGENT!r}"
    elif ua_token not in user_agent or identity.UA_TOKEN.lower() in user_agent.lower():
        expected = f"a line that has your own token {ua_token!r}, and not {identity.UA_TOKEN}"
    else:
        return False
    raise bad_setting(PREFIX + "USER_AGENT", user_agent, expected)


def _check_names(settings: BaseSettings) -> None:
    """Raise BadSetting for a ``WALSH_`` setting that does not exist."""
    names = [name.upper() for name in _FIELDS]
    for full_name in map(str, settings):
        name = full_name.removeprefix(PREFIX)
        if name == full_name or name in names or not settings.get(full_name):
            continue
        near = difflib.get_close_matches(name, names, n=1)  # PREFIX is common to all
        hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; see docs/settings.md"
        raise BadSetting(f"{full_name} is not a setting of walsh-scrapy{hint}")
