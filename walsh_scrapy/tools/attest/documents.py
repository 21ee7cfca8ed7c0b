"""The documents that decided, read from the record; those used last stay in memory."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist
from walsh_scrapy.policy.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.policy.robots import Rules

_RULES: Final = 256
#: Lists in memory at once: one of a million domains takes 300 MiB.
_LISTS: Final = 2


class KeptDocuments:
    """The copies of robots.txt and blocklist; ``copy`` returns the bytes of one by its name."""

    def __init__(self, copy: Callable[[str], bytes | None]) -> None:
        self._copy = copy
        self.rules = lru_cache(_RULES)(self._rules)
        self._read_list = lru_cache(_LISTS)(self._list)

    def blocklist(self, name: str) -> Blocklist | None:
        """Return a list that was in force; of an invalid one what can be read."""
        return self._read_list(name)[0]

    def blocklist_error(self, name: str) -> str:
        """Return why a list is invalid by the bundled schema; "" if it is valid."""
        return self._read_list(name)[1]

    def _rules(self, name: str, token: str) -> Rules | None:
        body = self._copy(name)
        return None if body is None else RobotsTxt.parse(body).rules_for(token)

    def _list(self, name: str) -> tuple[Blocklist | None, str]:
        body = self._copy(name)
        if body is None:
            return None, ""
        try:
            return Blocklist.parse(body), ""
        except InvalidBlocklist as error:
            return Blocklist.salvage(body), str(error)
