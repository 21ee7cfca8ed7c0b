"""Reading single settings: types and bounds are checked, and errors name the setting."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_T = TypeVar("_T")

PREFIX: Final = "WALSH_"
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?|inf", re.IGNORECASE
)
# Controls, and the surrogates that stand for bytes of a command line that are not UTF-8.
_NO_TEXT: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


class BadSetting(ValueError):
    """A setting has a value that is refused; the message says which value it has to have."""


def bad_setting(name: str, value: object, wanted: str) -> BadSetting:
    """Return the error for a setting; ``wanted`` completes "has to be"."""
    return BadSetting(f"{name} is {value!r}, but has to be {wanted}")


def number_of(
    settings: BaseSettings,
    name: str,
    default: float,
    *,
    low: float,
    high: float,
    whole: bool = False,
) -> float:
    """Return the number in any Scrapy setting, or ``default`` if that is None or not set.

    Raises BadSetting for anything else than a number from ``low`` to ``high``.
    """
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


class SettingsReader:
    """Reads ``WALSH_`` settings by their names without prefix; None counts as not set.

    Every method raises BadSetting for a value of another kind, or out of bounds.
    """

    def __init__(self, settings: BaseSettings) -> None:
        self.settings = settings

    def text(self, name: str, *, default: str) -> str:
        """Return one line of text without control characters and broken bytes, stripped."""
        value = self._value(name, default)
        if not isinstance(value, str) or _NO_TEXT.search(value):
            raise bad_setting(PREFIX + name, value, "a line of text")
        return value.strip()

    def url(self, name: str, *, default: str) -> str:
        """Return an http or https URL without user name and password, or an empty text."""
        value = self.text(name, default=default)
        if value:
            try:
                parts = urlsplit(value)
                is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
                has_user = parts.username is not None
            except ValueError:  # "http://[bad"
                is_web, has_user = False, "@" in value
            if has_user:  # the URL is not shown, because it may hold a password
                raise BadSetting(
                    f"{PREFIX}{name} holds a user name or password, which is never sent; remove it"
                )
            if not is_web:
                raise bad_setting(PREFIX + name, value, "an http or https URL")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a truth value; on the command line it may be written as 1, true, yes or on."""
        value = str(self._value(name, default)).strip().lower()
        if value not in _TRUE + _FALSE:
            raise bad_setting(PREFIX + name, value, "True or False")
        return value in _TRUE

    def choice(self, name: str, *, default: _T, choices: tuple[_T, ...]) -> _T:
        """Return one of ``choices``."""
        value = self._value(name, default)
        for choice in choices:
            if value == choice:
                return choice
        raise bad_setting(PREFIX + name, value, " or ".join(f'"{choice}"' for choice in choices))

    def number(self, name: str, *, default: float, low: float, high: float) -> float:
        """Return a number from ``low`` to ``high``."""
        return number_of(self.settings, PREFIX + name, default, low=low, high=high)

    def whole(self, name: str, *, default: int, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``."""
        settings, name = self.settings, PREFIX + name
        return int(number_of(settings, name, default, low=low, high=high, whole=True))

    def _value(self, name: str, default: object) -> object:
        value = self.settings.get(PREFIX + name)
        return default if value is None else value
