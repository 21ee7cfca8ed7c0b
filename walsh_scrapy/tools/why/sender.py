"""Who sent the requests: the names of the bot, its page, and whom to write to (R1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy import identity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Self

    from walsh_scrapy.options import Options
    from walsh_scrapy.state.runs import RunRecord

_PAGE: Final = re.compile(r"https?://[^\s;,)]+")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


@dataclass(frozen=True, slots=True)
class Sender:
    """A bot as it names itself. ``contact`` and ``policy`` are None if its User-Agent has none."""

    user_agents: tuple[str, ...]  #: of all runs that the letter is about, the newest first
    token: str  #: its name in robots.txt
    policy: str | None  #: a page
    contact: str | None  #: an address of mail
    blocklist: str  #: the URL of its blocklist; "" for none

    @classmethod
    def of(cls, runs: Iterable[RunRecord], options: Options) -> Self:
        """Return the sender of the runs, the newest first; without any, that of the options."""
        known: list[dict[str, Any]] = [dict(run.settings) for run in runs]
        names = {"user_agent", "ua_token", "blocklist_url"}
        given = [settings for settings in known if names <= settings.keys()]
        given = given or [{name: getattr(options, name) for name in names}]
        agents = tuple(dict.fromkeys(str(settings["user_agent"]) for settings in given))
        is_ours = agents[0] == identity.USER_AGENT
        page, mail = _PAGE.search(agents[0]), _MAIL.search(agents[0])
        return cls(
            user_agents=agents,
            token=str(given[0]["ua_token"]),
            policy=identity.POLICY_URL if is_ours else page and page[0],
            contact=identity.CONTACT if is_ours else mail and mail[0],
            blocklist=str(given[0]["blocklist_url"]),
        )

    @property
    def opt_out(self) -> tuple[str, str]:
        """The two lines of robots.txt that keep the bot out."""
        return f"User-agent: {self.token}", "Disallow: /"
