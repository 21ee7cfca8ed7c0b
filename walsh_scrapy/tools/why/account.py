"""What the state database has about one host on one day.

An account never names another site, unless the host itself redirected there (decision 36).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy import identity
from walsh_scrapy.crawl.documents.publishedlist import load_local_list
from walsh_scrapy.feeds.sources.source import unique
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.pacing import PaceBy
from walsh_scrapy.policy.urls import canonical_url, host_of, robots_url
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.hosts import to_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.runstore import RunRecord

Row = dict[str, Any]

_PAGE: Final = re.compile(r"https?://[^\s;,)]+")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
#: The columns of `readable_sources` about the next visit.
_VISIT_COLUMNS: Final = (
    *("url", "moved_to", "kind", "outcome", "status", "problem"),
    *("next_visit", "due_at", "is_due", "due_reason", "hold_until"),
)
#: The columns of `request_gaps` that `readable_requests` does not have.
_GAP_COLUMNS: Final = (
    *("gap", "required_gap", "problem", "gap_unknown"),
    *("previous_ended_at", "hold_request", "hold_until", "released_at"),
)


@dataclass(frozen=True, slots=True)
class Sender:
    """The bot that sent the requests."""

    user_agents: tuple[str, ...]  #: of all runs of that day, the newest first
    token: str  #: the name of the bot in robots.txt
    policy: str | None  #: the page in the User-Agent
    contact: str | None  #: the mail address in the User-Agent
    blocklist: str  #: the URL of the blocklist of the bot; "" without one
    follows_links: bool  #: whether the bot may request pages that no source declares

    @classmethod
    def from_runs(cls, runs: Iterable[RunRecord], options: Options) -> Self:
        """Return the sender of the runs, which come newest first; by default, of the options."""
        settings: list[Mapping[str, Any]] = [run.settings for run in runs] or [asdict(options)]
        newest = settings[0]
        agent = str(newest["user_agent"])
        is_walsh_research = agent == identity.USER_AGENT
        page = _PAGE.search(agent)
        mail = _MAIL.search(agent)
        return cls(
            user_agents=unique(str(values["user_agent"]) for values in settings),
            token=str(newest["ua_token"]),
            policy=identity.POLICY_URL if is_walsh_research else page and page[0],
            contact=identity.CONTACT if is_walsh_research else mail and mail[0],
            blocklist=str(newest["blocklist_url"]),
            follows_links=newest.get("scope") == "any",
        )


@dataclass(frozen=True, slots=True)
class Account:
    """One day of one host, in UTC. Rows have the columns of the views, with RFC 3339 times."""

    host: str
    url: str | None  #: the URL, if the call was about one URL
    day: str
    sender: Sender
    #: The requests, with their gaps, and the denials, in the order of time.
    requests: Sequence[Row]
    robots: Sequence[Row]  #: each robots.txt that allowed or denied one of the requests
    overrides: Sequence[Row]  #: what the operator changed, on any day
    now: str
    host_row: Row  #: the row of `readable_hosts`, or empty
    visits: Sequence[Row]  #: the next visit of each source
    domain: str | None  #: the domain that shares one delay; None if each host has its own
    is_listed: bool  #: whether the blocklist has the host now
    has_list: bool  #: whether the blocklist is published on this host


class _Reader:
    """Reads the views about one host; ``paced`` is the host or the domain that has one delay."""

    def __init__(self, state: State, options: Options, url: str) -> None:
        self.state = state
        self.host = host_of(url)
        self.paced = options.pace_by.unit(url)

    def rows(
        self, view: str, where: str, *, columns: str = "*", order_by: str = "", **params: object
    ) -> list[Row]:
        """Return rows of a view; the condition may use `:host` and `:paced`."""
        params |= {"host": self.host, "paced": self.paced}
        return list(
            self.state.rows(view, columns=columns, where=where, order_by=order_by, params=params)
        )

    def last_day(self) -> str | None:
        """Return the last day with a request or a denial, or None."""
        sent = self.rows(
            "readable_requests",
            "host = :paced",
            columns="DISTINCT substr(requested_at, 1, 10) AS day, url",
        )
        denied = self.rows(
            "readable_denials", "host = :host", columns="substr(max(denied_at), 1, 10) AS day"
        )
        days = [row["day"] for row in sent if host_of(row["url"]) == self.host]
        days += [row["day"] for row in denied if row["day"]]
        return max(days, default=None)

    def requests(self, day: str) -> list[Row]:
        """Return the requests of a day, with their gaps, and the denials, in the order of time."""
        on_day = "substr(requested_at, 1, 10) = :day"
        sent = self.rows(
            "readable_requests",
            f"host = :paced AND {on_day}",
            order_by="requested_at, id",
            day=day,
        )
        gaps = {
            row["id"]: row
            for row in self.rows("request_gaps", f"host = :paced AND {on_day}", day=day)
        }
        causes = {row["id"]: row for row in sent}
        for row in sent:
            gap = gaps.get(row["id"], {})
            row |= {name: gap.get(name) for name in _GAP_COLUMNS}
            number = row["hold_request"]
            if number is not None and number not in causes:
                (causes[number],) = self.rows("readable_requests", "id = :number", number=number)
            cause = causes.get(number, {})
            row["hold_requested_at"] = cause.get("requested_at")
            row["hold_status"] = cause.get("status")
        denied = self.rows(
            "readable_denials",
            "host = :host AND substr(denied_at, 1, 10) = :day",
            order_by="denied_at, id",
            day=day,
        )
        rows = [{"record": "request", "at": row["requested_at"]} | row for row in sent]
        rows += [{"record": "denial", "at": row["denied_at"]} | row for row in denied]
        rows.sort(key=itemgetter("at"))
        return [self._hide_other_sites(row) for row in rows if host_of(row["url"]) == self.host]

    def _hide_other_sites(self, row: Row) -> Row:
        """Remove other sites from a row, and return it."""
        row["is_redirected"] = row["redirected_from"] is not None
        for name in ("source", "redirected_from"):
            if row.get(name) and host_of(row[name]) != self.host:
                row[name] = None
        return row

    def robots(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield each robots.txt that allowed or denied one of the rows."""
        seen_keys = set[tuple[Any, ...]]()
        for row in rows:
            url = robots_url(row["url"])
            key = (url, row["robots_at"], row["robots_status"], row["robots"])
            # A request for robots.txt names the file in its own response, which decides only later.
            if row.get("purpose") == "robots" or row["robots_at"] is None or key in seen_keys:
                continue
            seen_keys.add(key)
            names = ("url", "requested_at", "status", "sha256")
            target = self._robots_target(url, row["robots_at"])
            yield dict(zip(names, key, strict=True)) | {"redirected_to": target}

    def _robots_target(self, url: str, moment: str) -> str | None:
        """Return the URL to which a robots.txt redirected when it was fetched, or None."""
        fetches = self.rows(
            "readable_requests",
            "purpose = 'robots' AND (url = :url OR redirected_from = :url) "
            "AND requested_at <= :moment",
            columns="url, redirected_from",
            order_by="requested_at DESC, id DESC",
            url=url,
            moment=moment,
        )
        for fetch in fetches:
            if fetch["redirected_from"] == url:
                return str(fetch["url"])
            if fetch["redirected_from"] is None:
                return None
        return None

    def visits(self, only_url: str | None) -> Iterator[Row]:
        """Yield the next visit of each source on this host, or of one source.

        A source that moved here from another site is shown with its URL on this host.
        """
        rows = self.rows(
            "readable_sources",
            "is_declared AND (host = :paced OR lower(url) LIKE '%://' || :host || '%')",
            columns=", ".join(_VISIT_COLUMNS),
            order_by="url",
        )
        for row in rows:
            moved_to = row["moved_to"]
            if host_of(row["url"]) != self.host and moved_to and host_of(moved_to) == self.host:
                row |= {"url": moved_to, "moved_to": None, "outcome": None}
            is_chosen = only_url in (None, canonical_url(row["url"]))
            if is_chosen and host_of(row["url"]) == self.host:
                yield row

    def explain_absence(self, days: int, day: str | None, last: str | None) -> CommandError:
        """Return the error for a host without rows, which says what there is instead."""
        if not self.host:
            example = f"{program_name()} why blog.example"
            return CommandError(
                f"this is not a host name or an http URL; write for example {example}"
            )
        when = f"in the last {days} days" if day is None else f"on {day}"
        nothing = f"no request to {self.host} {when}"
        if last is not None:
            return CommandError(f"{nothing}; the last request was on {last} (UTC)")
        with self.state.log() as log:
            subdomains = log.subdomains(self.host)
        if subdomains:
            return CommandError(f"{nothing}, but there are some to {', '.join(subdomains)}")
        return CommandError(f"{nothing}, and no source there. (Give the host without its port.)")


def read_account(state: State, options: Options, subject: str, day: str | None) -> Account:
    """Return the account of a host or URL on a day (`2026-11-17`), or on its last day.

    Raises CommandError if there is no request; the message says what there is instead.
    """
    url = to_url(subject)
    only_url = canonical_url(url) if "://" in subject else None
    reader = _Reader(state, options, url)
    now = rfc3339(state.hosts.find(reader.paced).now) or ""
    host_row = next(iter(reader.rows("readable_hosts", "host = :paced")), {})
    visits = list(reader.visits(only_url))
    overrides = reader.rows("readable_overrides", "host = :paced", order_by="id")
    last = reader.last_day()
    chosen = day or last or now[:10]
    rows = reader.requests(chosen)
    has_records = last or visits or overrides or host_row.get("is_on_hold")
    if not rows and (day is not None or not has_records):
        raise reader.explain_absence(options.log_days, day, last)
    if only_url is not None:
        matches = [row for row in rows if canonical_url(row["url"]) == only_url]
        if not (matches or visits):
            raise CommandError(
                f"no request to {only_url} on {chosen}; `{program_name()} why {reader.host} --on "
                f"{chosen}` shows all requests to the host"
            )
        rows = [row for row in rows if row.get("purpose") == "robots" or row in matches]
    numbers = sorted({row["run"] for row in rows} - {None}, reverse=True)
    runs = [state.runs.find(number) for number in numbers]
    sender = Sender.from_runs([run for run in runs if run is not None], options)
    published = state.blocklist.find(sender.blocklist)
    adopted = Blocklist.of_text(published.adopted) if published else Blocklist.EMPTY
    is_listed = adopted.blocks(url) or load_local_list(options.blocklist_file).blocks(url)
    list_urls = (sender.blocklist, options.blocklist_schema_url)
    return Account(
        host=reader.host,
        url=only_url,
        day=chosen,
        sender=sender,
        requests=rows,
        robots=list(reader.robots(rows)),
        overrides=overrides,
        now=now,
        host_row=host_row,
        visits=visits,
        domain=reader.paced if options.pace_by is PaceBy.DOMAIN else None,
        is_listed=bool(is_listed),
        has_list=reader.host in {host_of(list_url) for list_url in list_urls},
    )
