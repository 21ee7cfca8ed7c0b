"""The ``WALSH_`` settings: their defaults and limits, and how they are read and checked.

`docs/settings.md` is their reference.
"""

# ruff: noqa: RUF009 - the default of each field is a `field`, which instances do not share
from __future__ import annotations

import difflib
import math
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

from scrapy import version_info
from scrapy.exceptions import NotConfigured
from scrapy.settings import SettingsAttribute
from scrapy.utils.project import data_path

from walsh_scrapy import identity
from walsh_scrapy.policy.backoff import MIN_CAP_FACTOR
from walsh_scrapy.policy.pacing import PaceBy
from walsh_scrapy.policy.useragents import NoBotName, is_token, token_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.settings import BaseSettings

PREFIX: Final = "WALSH_"

Scope: TypeAlias = Literal["declared", "any"]
RobotsUnreachable: TypeAlias = Literal["allow", "disallow", "phased"]
Progress: TypeAlias = Literal["auto", "off"]
LogFormat: TypeAlias = Literal["text", "json"]
SignatureForm: TypeAlias = Literal["dictionary", "string"]

DAY_SECONDS: Final = 86_400
_SECRET: Final = ("state_url", "signing_key")
_NOT_IN_TOKEN: Final = re.compile("[^A-Za-z_-]")
_HOW_TO_CHOOSE: Final = (
    f"under the Walsh-Research identity; set your own {PREFIX}USER_AGENT and {PREFIX}UA_TOKEN to "
    "choose"
)
#: The defaults under the Walsh-Research identity: its site owners opt out in its blocklist, and the
#: contract lets it fetch while robots.txt is unreachable.
WALSH_RESEARCH_DEFAULTS: Final = {
    "blocklist_url": identity.BLOCKLIST_URL,
    "blocklist_schema_url": identity.BLOCKLIST_SCHEMA_URL,
    "robots_unreachable": "allow",
}
_EXPECTED_KEY_URL: Final = (
    f"the https URL at which your keys are published, because {PREFIX}SIGNING_KEY is set"
)
_NO_IDENTITY: Final = (
    "the project names no bot of its own, and no request is sent without a name; {} "
    '{} = "{}/1.0 (+https://your.page.example/)"'
)
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?|inf", re.IGNORECASE
)
# Control characters, and the surrogates for bytes of a command line that are not valid UTF-8.
_NOT_TEXT: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


class BadSetting(ValueError):
    """A setting has a wrong value. The message says which values are right."""


class WrongArgument(BadSetting):
    """A spider argument (``-a NAME=VALUE``) is unknown, or selects no source."""


def bad_setting(name: str, value: object, expected: str) -> BadSetting:
    """Return the error for a setting; ``expected`` completes the sentence "X must be"."""
    return BadSetting(f"{name} is {value!r:.300}, but must be {expected}")


def number_of(
    settings: BaseSettings, name: str, default: float, *, low: float, high: float
) -> float:
    """Return the number in any Scrapy setting, or ``default`` if the setting is None or not set.

    Raises BadSetting for any other value than a number from ``low`` to ``high``.
    """
    value = settings.get(name)
    return default if value is None else checked_number(name, value, low, high)


class Identity(NamedTuple):
    """The name of a bot: its User-Agent header, and its product token in robots.txt."""

    user_agent: str
    ua_token: str


WALSH_RESEARCH: Final = Identity(identity.USER_AGENT, identity.UA_TOKEN)


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


# Each of these functions returns the value of a setting as the right type. It raises BadSetting for
# a value of another type, or outside of its limits.


def checked_number(
    name: str, value: object, low: float, high: float, kind: str = "number"
) -> float:
    """Return a value as a number; raise BadSetting unless it is from ``low`` to ``high``."""
    bounds = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
    number = math.nan
    if isinstance(value, int | float) or _DECIMAL.fullmatch(str(value).strip()):
        with suppress(OverflowError):  # an int of 400 digits
            number = float(value)  # type: ignore[arg-type]
    if not low <= number <= high:
        raise bad_setting(name, value, f"a {kind} {bounds}")
    return number


def _check_whole_number(name: str, value: object, low: int, high: int) -> int:
    kind = "whole number"
    number = checked_number(name, value, low, high, kind)
    if number != int(number):
        raise bad_setting(name, value, f"a {kind} from {low} to {high}")
    return int(number)


def _check_line(name: str, value: object) -> str:
    """Return one line of text, without control characters and spaces around it."""
    if not isinstance(value, str) or _NOT_TEXT.search(value):
        raise bad_setting(name, value, "a line of text")
    return value.strip()


def _check_state_url(name: str, value: object) -> str:
    """Return one line of text. The error does not show the value, which may hold a password."""
    try:
        return _check_line(name, value)
    except BadSetting:
        raise BadSetting(f"{name} must be a line of text") from None


def _check_url(name: str, value: object) -> str:
    """Return an http or https URL without user name and password, or an empty text."""
    url = _check_line(name, value)
    if not url:
        return url
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_user = parts.username is not None
    except ValueError:  # "http://[bad"
        is_web = False
        has_user = "@" in url
    if has_user:  # do not show the URL, which may hold a password
        raise BadSetting(f"{name} holds a user name or password, which is never sent; remove it")
    if not is_web:
        raise bad_setting(name, url, "an http or https URL")
    return url


def _check_key_url(name: str, value: object) -> str:
    """Return the URL at which keys are published. Web Bot Auth allows https only.

    The URL is signed as it is, so it may not contain characters that need an escape.
    """
    url = _check_url(name, value)
    is_valid = url.startswith("https://") and url.isascii() and not set(url) & set(' "\\#@')
    if url and not is_valid:
        raise bad_setting(name, url, "an https URL of ASCII characters, without user name")
    return url


def _check_flag(name: str, value: object) -> bool:
    """Return True or False; the command line may write 1, true, yes, on, 0, false, no or off."""
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise bad_setting(name, value, "True or False")
    return text in _TRUE


def _check_choice(name: str, value: object, *choices: str) -> str:
    for choice in choices:
        if value == choice:
            return choice
    raise bad_setting(name, value, " or ".join(f'"{choice}"' for choice in choices))


def _check_log_format(name: str, value: object, *choices: str) -> str:
    if value == "json" and version_info < (2, 19):  # it has no LOG_INSTALL_ROOT_HANDLER
        raise bad_setting(name, value, '"text" before Scrapy 2.19; upgrade Scrapy to use "json"')
    return _check_choice(name, value, *choices)


def _setting(default: object, check: Callable[..., object], *arguments: object) -> Any:  # noqa: ANN401 - as field
    """Return the dataclass field of a setting; ``check(name, value, *arguments)`` checks it."""
    return field(default=default, metadata={"check": check, "arguments": arguments})


def _default_state_url() -> str:
    """Return the URL of the state database in the project's data folder, which it creates.

    Raises BadSetting if the folder cannot be created.
    """
    try:
        with suppress(FileExistsError):  # another process created the folder at the same moment
            data_path("")
        path = data_path("walsh.sqlite3")
    except NotConfigured:  # outside a project, as in a script
        path = str(Path(".scrapy", "walsh.sqlite3").absolute())
    except OSError as error:
        raise BadSetting(
            f"the state database cannot be in {error.filename}, the data folder of the project: "
            f"{error.strerror}; create that folder, or set WALSH_STATE_URL to another place"
        ) from None
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The ``WALSH_`` settings of a project, each under its name in lower case.

    The comment on a setting is its description in docs/settings.md, which `make references` writes.
    """

    #: `False` switches the add-on off, and all its gates with it.
    enabled: bool = _setting(True, _check_flag)
    #: The User-Agent header of every request. Empty: the one that Scrapy would send by the
    #: project's own settings, such as its `USER_AGENT`.
    user_agent: str = _setting("", _check_line)
    #: The product token that selects the groups of robots.txt, in upper or lower case. Empty: the
    #: name of the bot in the User-Agent.
    ua_token: str = _setting("", _check_line)
    #: The file of the private key that signs every https request. Empty: requests are not signed.
    signing_key: str = _setting("", _check_line)
    #: The https URL at which the public keys are published, sent with every signature.
    signature_agent: str = _setting("", _check_key_url)
    #: The form of the `Signature-Agent` header: `"dictionary"` as in the newest draft, `"string"`
    #: for verifiers of older drafts.
    signature_form: SignatureForm = _setting("dictionary", _check_choice, *get_args(SignatureForm))
    #: The URL of the published blocklist, the hosts whose owners opted out. Empty: there is none.
    blocklist_url: str = _setting("", _check_url)
    #: The URL of a JSON Schema that the published blocklist must satisfy, in addition to the
    #: bundled schema. Empty: the bundled schema alone.
    blocklist_schema_url: str = _setting("", _check_url)
    #: A file with hosts to block, in addition to the published blocklist.
    blocklist_file: str = _setting("", _check_line)
    #: The SQLAlchemy URL of the state database.
    state_url: str = _setting("", _check_state_url)
    #: The minimum delay from the end of one exchange with a host to the next request, in seconds.
    #: Below 1 only in a project's own crawl.
    min_interval: float = _setting(1.0, checked_number, 0.0, DAY_SECONDS)
    #: `True`: one request at a time, over at most one connection. `False`: one request at a time
    #: for each host.
    serial: bool = _setting(True, _check_flag)
    #: The URLs that a spider may request: with `"declared"` those of its sources, with `"any"`
    #: all.
    scope: Scope = _setting("declared", _check_choice, *get_args(Scope))
    #: What shares delay, hold and owner: with `"host"` a host name, with `"domain"` all host names
    #: of a registrable domain.
    pace_by: PaceBy = _setting(PaceBy.HOST, _check_choice, *PaceBy)
    #: The maximum wait for a host, in seconds. A request that would wait longer is deferred to a
    #: later run.
    max_wait: float = _setting(900.0, checked_number, 0.0, math.inf)
    #: The seconds after which a copy of robots.txt is fetched again.
    robots_ttl: float = _setting(DAY_SECONDS, checked_number, 1.0, DAY_SECONDS)
    #: What a host may get while its robots.txt is unreachable: it still answers 429 or 5xx after
    #: the retries, or sends no response. `"allow"` and `"disallow"` use the last good copy, and
    #: without a copy allow everything or nothing. `"phased"` does what RFC 9309 2.3.1.4 says.
    robots_unreachable: RobotsUnreachable = _setting(
        "phased", _check_choice, *get_args(RobotsUnreachable)
    )
    #: The maximum number of retries after a 429 or 503. One more refusal in a row defers the
    #: remaining requests of the host to a later run.
    max_retries: int = _setting(4, _check_whole_number, 0, 20)
    #: The hold of a host after its first 429 or 503 without a Retry-After, in seconds.
    backoff_base: float = _setting(2.0, checked_number, 0.01, DAY_SECONDS)
    #: The maximum hold without a Retry-After, in seconds.
    backoff_max: float = _setting(300.0, checked_number, 0.01, 30 * DAY_SECONDS)
    #: The minimum time between two visits of a source, in seconds.
    min_revisit: float = _setting(DAY_SECONDS, checked_number, 0.0, 30 * DAY_SECONDS)
    #: The number of days for which requests and denials are kept in the state.
    log_days: int = _setting(30, _check_whole_number, 1, 400)
    #: `True`: a spider's run yields a known entry once more when its title has changed, with the
    #: time in `changed_at`. `walsh new --changed` lists such entries in any case.
    report_changes: bool = _setting(False, _check_flag)
    #: The file that declares the sources. Its format is known by its suffix: `.toml`, `.opml`,
    #: `.xml` or `.txt`.
    sources: str = _setting("sources.toml", _check_line)
    #: `"auto"`: show the progress of a run, at a terminal in three lines below the log, elsewhere
    #: by a log line in each minute that changed a count. `"off"`: do not show it.
    progress: Progress = _setting("auto", _check_choice, *get_args(Progress))
    #: The format of the log: lines of text, or one JSON object per line.
    log_format: LogFormat = _setting("text", _check_log_format, *get_args(LogFormat))

    @classmethod
    def from_settings(
        cls, settings: BaseSettings, spidercls: type[Spider] | None = None
    ) -> Options:
        """Read and check every ``WALSH_`` setting of a Scrapy project.

        Without an identity ``user_agent`` and ``ua_token`` are empty: a command that only reads the
        state needs none. Raises BadSetting for

        - a value of the wrong type or outside of its limits;
        - an unknown ``WALSH_`` name;
        - a ``backoff_max`` below ``backoff_base``, also if it is the default;
        - an identity that names no bot, or a mixture with that of Walsh-Research;
        - a choice that is fixed under the Walsh-Research identity.
        """
        _refuse_unknown_names(settings)
        values = {name: _read_setting(settings, name) for name in _FIELDS}
        bot = identity_of(settings, spidercls)
        if bot is not None:
            values |= bot._asdict()
        is_walsh_research = bot == WALSH_RESEARCH
        if is_walsh_research:
            values |= {
                name: default
                for name, default in WALSH_RESEARCH_DEFAULTS.items()
                if settings.get(PREFIX + name.upper()) is None
            }
        values["state_url"] = values["state_url"] or _default_state_url()
        if values["signing_key"] and not values["signature_agent"]:
            raise bad_setting(PREFIX + "SIGNATURE_AGENT", "", _EXPECTED_KEY_URL)
        options = cls(**values)
        if is_walsh_research:
            _check_walsh_research(options)
        elif options.backoff_max < options.backoff_base:
            name, base = PREFIX + "BACKOFF_MAX", _shorten(options.backoff_base)
            expected = f"at least {base} ({PREFIX}BACKOFF_BASE); set {name} = {base} or more"
            raise bad_setting(name, _shorten(options.backoff_max), expected)
        return options

    def for_record(self) -> dict[str, Any]:
        """Return the options for the row of a run, as JSON values; infinity is "inf".

        Without ``state_url``, which may hold a password, and ``signing_key``, the path of a secret.
        """
        values = {name: value for name, value in asdict(self).items() if name not in _SECRET}
        return {name: str(value) if value == math.inf else value for name, value in values.items()}

    @property
    def log_seconds(self) -> float:
        """``log_days`` in seconds."""
        return self.log_days * float(DAY_SECONDS)

    @property
    def is_walsh_research(self) -> bool:
        """True if the crawl has the Walsh-Research identity (R1)."""
        return Identity(self.user_agent, self.ua_token) == WALSH_RESEARCH


_FIELDS: Final = {option.name: option for option in fields(Options)}


def _read_setting(settings: BaseSettings, name: str) -> Any:  # noqa: ANN401 - the field's type
    """Return the checked value of a setting, or its default if it is None or not set."""
    option = _FIELDS[name]
    full_name = PREFIX + name.upper()
    value = settings.get(full_name)
    if value is None:
        value = option.default
    return option.metadata["check"](full_name, value, *option.metadata["arguments"])


def log_format_of(settings: BaseSettings) -> LogFormat:
    """Return ``WALSH_LOG_FORMAT`` alone, because the log is set up before the other settings.

    Raises BadSetting for a value other than "text" and "json".
    """
    log_format: LogFormat = _read_setting(settings, "log_format")
    return log_format


def is_enabled(settings: BaseSettings) -> bool:
    """Return ``WALSH_ENABLED`` alone. Raises BadSetting for a value that is no flag."""
    return bool(_read_setting(settings, "enabled"))


def identity_of(settings: BaseSettings, spidercls: type[Spider] | None = None) -> Identity | None:
    """Return the identity of a crawl, or None if the project names no bot.

    ``WALSH_USER_AGENT`` and ``WALSH_UA_TOKEN`` are it where they are set. What they do not say
    comes from the User-Agent that Scrapy would send for a spider of this class. Raises BadSetting
    for a User-Agent that names no bot, for a token that robots.txt cannot name (RFC 9309 2.2.1),
    for a User-Agent without the token, and for a mixture with the Walsh-Research identity.
    """
    name, agent = PREFIX + "USER_AGENT", _read_setting(settings, "user_agent")
    token: str = _read_setting(settings, "ua_token")
    if not agent:
        name, agent = own_user_agent(settings, spidercls)
    if token and not is_token(token):
        raise _bad_token(token)
    if not agent:
        if token:
            raise no_identity(settings)
        return None
    bot = Identity(agent, token or _token_in(name, agent))
    if bot != WALSH_RESEARCH:
        _check_own_identity(name, bot)
    return bot


def own_user_agent(
    settings: BaseSettings, spidercls: type[Spider] | None = None
) -> tuple[str, str]:
    """Return the User-Agent that Scrapy would send by itself, after the setting that names it.

    That is the one of ``DEFAULT_REQUEST_HEADERS``, or else the attribute ``user_agent`` of the
    spider's class, or else ``USER_AGENT``. It is empty if that is the default of Scrapy. A
    ``user_agent`` in the instance of a spider is not known when its crawl is set up.
    """
    headers = settings.getdict("DEFAULT_REQUEST_HEADERS")
    in_header = next((headers[key] for key in headers if key.lower() == "user-agent"), None)
    is_set = (settings.getpriority("USER_AGENT") or 0) > 0
    for name, value in (
        ("DEFAULT_REQUEST_HEADERS['User-Agent']", in_header),
        ("user_agent of the spider", getattr(spidercls, "user_agent", None)),
        ("USER_AGENT", settings["USER_AGENT"] if is_set else None),
    ):
        if value:
            return name, _check_line(name, value)
    return "USER_AGENT", ""


def no_identity(settings: BaseSettings) -> BadSetting:
    """Return the error for a crawl without an identity; it has the line to add."""
    name = _NOT_IN_TOKEN.sub("", str(settings["WALSH_UA_TOKEN"] or settings["BOT_NAME"]))
    place, setting = "add this line to its settings:", "USER_AGENT"
    if f"{PREFIX}USER_AGENT" in settings:  # the project has this line already, without a name
        place, setting = "set this in its settings:", f"{PREFIX}USER_AGENT"
    return BadSetting(_NO_IDENTITY.format(place, setting, name or "Your-Bot"))


def _check_walsh_research(options: Options) -> None:
    """Raise BadSetting for settings that are fixed under the Walsh-Research identity.

    Its promises need a retry, and holds that grow and have jitter (R5). Its blocklist cannot be
    switched off, because site owners opt out there (R3).
    """
    min_cap = MIN_CAP_FACTOR * options.backoff_base
    cap = f"at least {min_cap:g} ({MIN_CAP_FACTOR:g} times {PREFIX}BACKOFF_BASE)"
    blocklist = "the URL of a blocklist, because site owners opt out there,"
    for name, is_allowed, expected in (
        ("MAX_RETRIES", options.max_retries >= 1, "at least 1"),
        ("BACKOFF_MAX", options.backoff_max >= min_cap, cap),
        ("SERIAL", options.serial, "True"),
        ("SCOPE", options.scope == "declared", "'declared'"),
        ("BLOCKLIST_URL", options.blocklist_url, blocklist),
    ):
        if not is_allowed:
            value = _shorten(getattr(options, name.lower()))
            raise bad_setting(PREFIX + name, value, f"{expected} {_HOW_TO_CHOOSE}")


def _shorten(value: object) -> object:
    """Return the value of a setting as people write it: 300 and not 300.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _token_in(name: str, user_agent: str) -> str:
    """Return the token in a User-Agent, which the setting ``name`` has."""
    try:
        return token_in(user_agent)
    except NoBotName as error:
        expected = f"the name of your bot: {error}; for example 'YourBot/1.0 (+https://your.page/)'"
        raise bad_setting(name, user_agent, expected) from None


def _bad_token(token: str) -> BadSetting:
    wrong = _NOT_IN_TOKEN.search(token)
    proposed = _NOT_IN_TOKEN.sub("", token.partition("/")[0]) or "Your-Bot"
    return BadSetting(
        f"{PREFIX}UA_TOKEN is {token!r:.300}, but {wrong and wrong[0]!r} is not allowed: a name in "
        "robots.txt has letters, '_' and '-' only (RFC 9309 2.2.1); use for example "
        f"{proposed!r}, also in your User-Agent"
    )


def _check_own_identity(name: str, bot: Identity) -> None:
    """Raise BadSetting for an identity that cannot be sent, or mixes in that of Walsh-Research.

    The setting ``name`` has its User-Agent.
    """
    agent, token = bot
    walsh_token = identity.UA_TOKEN.lower()
    is_other_token = token.lower() != walsh_token
    is_ascii = agent.isascii() and agent.isprintable()
    has_token = token in agent and walsh_token not in agent.lower()
    for is_allowed, expected in (
        (is_ascii, "a line of printable ASCII characters (RFC 9110 5.5)"),
        (is_other_token, f"exactly {identity.USER_AGENT!r}"),
        (has_token, f"a line that contains your own token {token!r}"),
    ):
        if not is_allowed:
            raise bad_setting(name, agent, expected)


def _refuse_unknown_names(settings: BaseSettings) -> None:
    """Raise BadSetting for a ``WALSH_`` name that is no setting, with the most similar one."""
    names = [name.upper() for name in _FIELDS]
    for full_name in map(str, settings):
        name = full_name.removeprefix(PREFIX)
        if name == full_name or name in names or not settings.get(full_name):
            continue
        near = difflib.get_close_matches(name, names, n=1)  # PREFIX is common to all
        hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; see docs/settings.md"
        raise BadSetting(f"{full_name} is not a setting of walsh-scrapy{hint}")
