"""``walsh why URL|HOST``: what the state database has about one host, for a letter to its owner.

`letter` writes the account of one day or of a period. An account never names another site, unless
the host itself redirected there (decision 36).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy import identity
from walsh_scrapy.crawl.documents.publishedlist import load_local_list
from walsh_scrapy.feeds.sources.source import unique
from walsh_scrapy.policy.advice import complete_host, complete_source
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.pacing import PaceBy
from walsh_scrapy.policy.robots.copy import RobotsFile
from walsh_scrapy.policy.robots.robotstxt import RobotsTxt
from walsh_scrapy.policy.urls import canonical_url, host_of, robots_url
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError
from walsh_scrapy.tools.lists import VisitTimes, to_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.robots.robotstxt import Rules
    from walsh_scrapy.state import State
    from walsh_scrapy.state.runstore import RunRecord
    from walsh_scrapy.tools.call import Call


def find_missing(
    since: str | None, overrides: Iterable[Mapping[str, Any]], kept_since: str, log_days: int
) -> list[dict[str, Any]]:
    """Return a row for each reason why requests since a day may be missing.

    ``since`` is a day such as `2026-11-17`; None for an open beginning. ``overrides`` are rows of
    `readable_overrides`. ``kept_since`` is the RFC 3339 time before which the log has nothing.
    """
    begins_at = f"{since}T00:00:00Z" if since else ""
    rows: list[dict[str, Any]] = []
    if begins_at < kept_since:
        rows.append({"cause": "expired", "before": kept_since, "log_days": log_days})
    for override in overrides:
        is_deletion = override["override"] == "forget" and override["requests"]
        if is_deletion and begins_at <= override["made_at"]:
            names = ("host", "url", "requests")
            row = {"cause": "forgotten", "before": override["made_at"]}
            rows.append(row | {name: override[name] for name in names})
    return rows


def describe_missing(row: Mapping[str, Any]) -> str:
    """Return a sentence about a row of `find_missing`, with an RFC 3339 time."""
    before = row["before"].removesuffix("T00:00:00Z")
    if row["cause"] == "expired":
        return f"Requests before {before} are no longer kept (WALSH_LOG_DAYS = {row['log_days']})."
    deleted = f"{count_of(row['requests'], 'request')} of {row['url'] or row['host']}"
    return f"We deleted {deleted} at {before}: this letter cannot say all that was sent before."


def run(call: Call) -> int:
    """Read the state database, and print the letter."""
    from walsh_scrapy.tools.call import WrongCall
    from walsh_scrapy.tools.show import print_lines
    from walsh_scrapy.tools.why.letter import letter, to_records

    arguments = call.arguments
    since, until = arguments.since, arguments.until
    if arguments.on and (since or until):
        raise WrongCall("--on is one day, and --since and --until are a period; drop one of them")
    if since and until and since > until:
        raise WrongCall(f"--since {since} is after --until {until}")
    since = arguments.on or since
    until = arguments.on or until
    days = Days(since, until) if since or until else None
    with call.state() as state:
        account = read_account(state, call.options, arguments.subject, days)
    print_lines(map(json.dumps, to_records(account)) if arguments.json else letter(account))
    return 0


Row = dict[str, Any]

_SECOND: Final = timedelta(seconds=1)
#: The outcome of a source whose redirect leads to where a gate denies it. Which gate that is would
#: be said of another site.
_DENIED_REDIRECT: Final = "its redirect is denied by "
_PAGE: Final = re.compile(r"https?://[^\s;,)]+")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
#: The columns of `readable_sources` about the next visit.
_VISIT_COLUMNS: Final = (
    *("url", "moved_to", "kind", "outcome", "status", "problem"),
    *("next_visit", "due_at", "is_due", "due_reason", "hold_until"),
)
#: The columns of `readable_hosts` about a domain: its other columns say why it waits, which may be
#: an answer of another host of the domain.
_DOMAIN_COLUMNS: Final = (
    *("host", "waits_for", "waits_until", "is_on_hold", "hold_until", "is_in_flight"),
    *("delay", "operator_delay", "last_override", "last_override_at", "last_override_reason"),
)
#: The columns of `request_gaps` that `readable_requests` does not have.
_GAP_COLUMNS: Final = (
    *("gap", "required_gap", "problem", "gap_unknown"),
    *("previous_ended_at", "hold_request", "hold_until", "released_at"),
)


@dataclass(frozen=True, slots=True)
class Days:
    """The days from `since` to `until` in UTC, such as `2026-11-17`; None for an open end."""

    since: str | None = None
    until: str | None = None

    @property
    def is_one(self) -> bool:
        """Whether this is one day."""
        return self.since is not None and self.since == self.until

    @property
    def words(self) -> str:
        """The days in a sentence."""
        if self.is_one:
            return f"on {self.since}"
        if self.since and self.until:
            return f"from {self.since} to {self.until}"
        return f"since {self.since}" if self.since else f"until {self.until}"

    @property
    def arguments(self) -> str:
        """The arguments of `walsh why` for these days."""
        if self.is_one:
            return f"--on {self.since}"
        ends = (("--since", self.since), ("--until", self.until))
        return " ".join(f"{name} {day}" for name, day in ends if day)

    @property
    def params(self) -> dict[str, str]:
        """The parameters for the condition that `has` returns."""
        return {"since": self.since or "", "until": self.until or "9999"}

    @staticmethod
    def has(moment: str) -> str:
        """Return the SQL condition that the column ``moment`` is in these days."""
        return f"substr({moment}, 1, 10) >= :since AND substr({moment}, 1, 10) <= :until"


@dataclass(frozen=True, slots=True)
class Sender:
    """The bot that sent the requests."""

    user_agents: tuple[str, ...]  #: of all its runs in these days, the newest first
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
    """Some days of one host. Rows have the columns of the views, with RFC 3339 times."""

    host: str
    url: str | None  #: the URL, if the call was about one URL
    days: Days
    sender: Sender
    #: The requests with their gaps, and the denials, in the order of time; each has its `bot`.
    requests: Sequence[Row]
    others: Sequence[Row]  #: other bots that use this state and have rows in these days
    robots: Sequence[Row]  #: each robots.txt that allowed or denied one of the requests
    overrides: Sequence[Row]  #: what the operator changed, on any day
    missing: Sequence[Row]  #: why requests of these days may be missing
    now: str
    host_row: Row  #: the row of `readable_hosts`, or empty
    visits: Sequence[Row]  #: the next visit of each source
    domain: str | None  #: the domain that shares one delay; None if each host has its own
    is_listed: bool  #: whether the blocklist has the host now
    has_list: bool  #: whether the blocklist is published on this host
    is_shut: bool  #: whether the robots.txt of the host denies everything to the bot now


class _Reader:
    """Reads the views about one host; ``paced`` is the host or the domain that has one delay."""

    def __init__(self, state: State, options: Options, url: str) -> None:
        self.state = state
        self.options = options
        self.host = host_of(url)
        self.paced = options.pace_by.unit(url)
        self.run = cache(self._find_run)
        self.rules = cache(self._read_rules)
        newest = state.runs.latest(1)
        self._token = options.ua_token or str(newest[0].settings["ua_token"] if newest else "")

    def rows(
        self, view: str, where: str, *, columns: str = "*", order_by: str = "", **params: object
    ) -> list[Row]:
        """Return rows of a view; the condition may use `:host` and `:paced`."""
        params |= {"host": self.host, "paced": self.paced}
        return list(
            self.state.rows(view, columns=columns, where=where, order_by=order_by, params=params)
        )

    def _find_run(self, number: int | None) -> RunRecord | None:
        return None if number is None else self.state.runs.find(number)

    def bot(self, row: Row) -> str:
        """Return whose row this is: the name of a bot in robots.txt; by default of this bot."""
        run = self.run(row["run"])
        token = self._token if run is None else str(run.settings.get("ua_token", self._token))
        return self._token if token.casefold() == self._token.casefold() else token

    def is_of_this_bot(self, row: Row) -> bool:
        """Return False for a row of another bot that uses this state."""
        return self.bot(row) == self._token

    def sender(self, rows: Iterable[Row]) -> Sender:
        """Return this bot, as the runs of its rows have it."""
        numbers = {row["run"] for row in rows if self.is_of_this_bot(row)} - {None}
        runs = [self.run(number) for number in sorted(numbers, reverse=True)]
        return Sender.from_runs([run for run in runs if run is not None], self.options)

    def is_listed(self, url: str, sender: Sender) -> bool:
        """Return whether a blocklist of the bot has the host now."""
        published = self.state.blocklist.find(sender.blocklist)
        adopted = Blocklist.of_text(published.adopted) if published else Blocklist.EMPTY
        local = load_local_list(self.options.blocklist_file)
        return bool(adopted.blocks(url) or local.blocks(url))

    def is_shut(self, sender: Sender, now: float) -> bool:
        """Return whether each robots.txt of the host denies everything to the bot.

        A file that is unreachable denies nothing itself. ``now`` is in epoch seconds.
        """
        where = "origin LIKE '%://' || :host || ':%'"
        origins = [row["origin"] for row in self.rows("readable_robots", where, columns="origin")]
        copies = map(self.state.robots.find, origins)
        policy = self.options.robots_unreachable
        files = [RobotsFile.from_copy(copy, sender.token, policy, now) for copy in copies if copy]
        return bool(files) and all(file.rules.denies_all and not file.is_replaced for file in files)

    def last_day(self) -> str | None:
        """Return the last day with a request or a denial, or None; of this bot, if there is any."""
        sent = self.rows(
            "readable_requests",
            "host = :paced",
            columns="DISTINCT substr(requested_at, 1, 10) AS day, url, run",
        )
        denied = self.rows(
            "readable_denials",
            "host = :host",
            columns="DISTINCT substr(denied_at, 1, 10) AS day, run",
        )
        rows = [row for row in sent if host_of(row["url"]) == self.host] + denied
        own = [row["day"] for row in rows if self.is_of_this_bot(row)]
        return max(own or [row["day"] for row in rows], default=None)

    def requests(self, days: Days) -> list[Row]:
        """Return the requests, with their gaps, and the denials, in the order of time.

        They are of this bot and of others.
        """
        sent = self.rows(
            "readable_requests",
            f"host = :paced AND {days.has('requested_at')}",
            order_by="requested_at, id",
            **days.params,
        )
        gaps = {
            row["id"]: row
            for row in self.rows(
                "request_gaps", f"host = :paced AND {days.has('requested_at')}", **days.params
            )
        }
        causes = {row["id"]: row for row in sent}
        for row in sent:
            gap = gaps.get(row["id"], {})
            row |= {name: gap.get(name) for name in _GAP_COLUMNS}
            number = row["hold_request"]
            if number is not None and number not in causes:
                (causes[number],) = self.rows("readable_requests", "id = :number", number=number)
            self._set_cause(row, causes.get(number))
        denied = self.rows(
            "readable_denials",
            f"host = :host AND {days.has('denied_at')}",
            order_by="denied_at, id",
            **days.params,
        )
        rows = [{"record": "request", "at": row["requested_at"]} | row for row in sent]
        rows += [{"record": "denial", "at": row["denied_at"]} | row for row in denied]
        rows.sort(key=itemgetter("at"))
        return [self._hide_other_sites(row) for row in rows if host_of(row["url"]) == self.host]

    def _set_cause(self, row: Row, cause: Row | None) -> None:
        """Add the request that caused the hold before a request, if it went to this host."""
        if cause is not None and host_of(cause["url"]) != self.host:
            row["hold_request"] = None
            cause = None
        row["hold_requested_at"] = cause and cause["requested_at"]
        row["hold_status"] = cause and cause["status"]

    def _hide_other_sites(self, row: Row) -> Row:
        """Remove other sites from a row, and return it."""
        row["is_redirected"] = row["redirected_from"] is not None
        for name in ("source", "redirected_from"):
            if row.get(name) and host_of(row[name]) != self.host:
                row[name] = None
        return row

    def add_window(self, row: Row) -> None:
        """Add to a request when the Visit-time window began in which it was sent.

        That is None if its robots.txt has no Visit-time, and for a request for robots.txt, which
        may come at any time.
        """
        row["visit_time_began_at"] = None
        if row["robots"] is None or row["url"] == robots_url(row["url"]):
            return
        rules = self.rules(row["robots"], row["bot"])
        sent_at = datetime.fromisoformat(row["requested_at"])
        if rules is not None and (began_at := rules.opened(sent_at)):
            row["visit_time_began_at"] = rfc3339(began_at.timestamp())

    def _read_rules(self, sha256: str, bot: str) -> Rules | None:
        """Return the rules for a bot in a stored robots.txt, or None if it is not stored."""
        body = self.state.evidence.copy(sha256)
        return None if body is None else RobotsTxt.parse(body).rules_for(bot)

    def robots(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield each robots.txt that allowed or denied one of the rows."""
        has_rule: dict[tuple[Any, ...], bool] = {}
        for row in rows:
            # A request for robots.txt names the file in its own response, which decides only later.
            if row.get("purpose") == "robots" or row["robots_at"] is None:
                continue
            key = (robots_url(row["url"]), row["robots_at"], row["robots_status"], row["robots"])
            has_rule[key] = has_rule.get(key, False) or row["line"] is not None
        names = ("url", "requested_at", "status", "sha256")
        for key, is_quoted in has_rule.items():
            url, requested_at, status, sha256 = key
            yield dict(zip(names, key, strict=True)) | {
                "redirected_to": self._robots_target(url, requested_at),
                "read_at": self._read_at(url, requested_at, status, sha256),
                "has_rule": is_quoted,
            }

    def _read_at(
        self, url: str, requested_at: str, status: int | None, sha256: str | None
    ) -> str | None:
        """Return when the robots.txt that decided was read, or was confirmed by a 304.

        That is earlier than the last request for it, if that failed. None for no file, and if the
        log does not go back so far.
        """
        if sha256 is None:
            return None
        if is_good(status):
            return requested_at
        (row,) = self.rows(
            "readable_requests",
            "purpose = 'robots' AND url = :url AND robots = :sha256 AND robots_at <= :moment "
            "AND (robots_status BETWEEN 200 AND 299 OR robots_status = 304)",
            columns="max(robots_at) AS moment",
            url=url,
            sha256=sha256,
            moment=requested_at,
        )
        moment: str | None = row["moment"]
        return moment

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

    def visits(self, only_url: str | None, now: float) -> Iterator[Row]:
        """Yield the next visit of each source on this host, or of one source.

        A source that moved here from another site is shown with its URL on this host. ``now`` is in
        epoch seconds.
        """
        rows = self.rows(
            "readable_sources",
            "is_declared AND (host = :paced OR lower(url) LIKE '%://' || :host || '%')",
            order_by="url",
        )
        visit_times = VisitTimes(self.state, self.options, now)
        for found in rows:
            complete = complete_source(found)
            row = {name: complete[name] for name in _VISIT_COLUMNS}
            moved_to = row["moved_to"]
            if host_of(row["url"]) != self.host and moved_to and host_of(moved_to) == self.host:
                row |= {"url": moved_to, "moved_to": None, "outcome": None}
            if (row["outcome"] or "").startswith(_DENIED_REDIRECT):
                row["outcome"] = "its redirect was not followed"
            visit_times.apply(row)
            is_chosen = only_url in (None, canonical_url(row["url"]))
            if is_chosen and host_of(row["url"]) == self.host:
                yield row

    def host_row(self) -> Row:
        """Return the row of `readable_hosts`, or an empty row.

        Of a domain only what is true for each of its hosts is returned.
        """
        row = next(map(complete_host, self.rows("readable_hosts", "host = :paced")), {})
        if self.options.pace_by is PaceBy.HOST or not row:
            return row
        reason = f"all hosts of {self.paced} wait together" if row["waits_for"] else None
        return {name: row[name] for name in _DOMAIN_COLUMNS} | {"reason": reason}

    def overrides(self) -> list[Row]:
        """Return what the operator changed about this host, and about its sources."""
        rows = self.rows("readable_overrides", "host = :paced", order_by="id")
        return [row for row in rows if row["url"] is None or host_of(row["url"]) == self.host]

    def missing(self, days: Days, overrides: Iterable[Row], now: float) -> list[Row]:
        """Return why requests of these days may be missing; ``now`` is in epoch seconds."""
        kept_since = self.state.evidence.kept_since(now, self.options.log_seconds)
        log_days = self.options.log_days
        return find_missing(days.since, overrides, rfc3339(kept_since) or "", log_days)

    def explain_absence(
        self, days: Days | None, last: str | None, missing: Iterable[Row]
    ) -> CommandError:
        """Return the error for a host without rows, which says what there is instead."""
        if not self.host:
            example = f"{program_name()} why blog.example"
            return CommandError(
                f"this is not a host name or an http URL; write for example {example}"
            )
        when = f"in the last {self.options.log_days} days" if days is None else days.words
        nothing = _say_nothing(self.host, when, missing)
        if last is not None:
            return CommandError(f"{nothing}; the last request was on {last} (UTC)")
        with self.state.log() as log:
            subdomains = log.subdomains(self.host)
        if subdomains:
            return CommandError(f"{nothing}, but there are some to {', '.join(subdomains)}")
        return CommandError(f"{nothing}, and no source there. (Give the host without its port.)")


def read_account(state: State, options: Options, subject: str, days: Days | None = None) -> Account:
    """Return the account of a host or URL for some days, by default for its last day.

    Raises CommandError if there is no request; the message says what there is instead.
    """
    url = to_url(subject)
    only_url = canonical_url(url) if "://" in subject else None
    reader = _Reader(state, options, url)
    moment = state.hosts.find(reader.paced).now
    now = rfc3339(moment) or ""
    host_row = reader.host_row()
    visits = list(reader.visits(only_url, moment))
    overrides = reader.overrides()
    last = reader.last_day()
    chosen = days or Days(last or now[:10], last or now[:10])
    missing = reader.missing(chosen, overrides, moment)
    is_deleted = any(row["cause"] == "forgotten" for row in missing)
    rows = reader.requests(chosen)
    sender = reader.sender(rows)
    is_listed = reader.is_listed(url, sender)
    has_records = last or visits or overrides or host_row.get("is_on_hold") or is_listed
    if not rows and not is_deleted and (days is not None or not has_records):
        raise reader.explain_absence(days, last, missing)
    if only_url is not None:
        matches = [row for row in rows if canonical_url(row["url"]) == only_url]
        if not (matches or visits or is_deleted):
            nothing = _say_nothing(only_url, chosen.words, missing)
            raise CommandError(
                f"{nothing}; `{program_name()} why {reader.host} {chosen.arguments}` shows all "
                "requests to the host"
            )
        rows = [row for row in rows if row.get("purpose") == "robots" or row in matches]
    for row in rows:
        row["bot"] = reader.bot(row)
        if row["record"] == "request":
            reader.add_window(row)
            row["hold_ended_at"] = _hold_ended_at(row, overrides)
    list_urls = (sender.blocklist, options.blocklist_schema_url)
    for row in visits if is_listed else ():
        row |= {"next_visit": "never", "is_due": False, "due_reason": "on our blocklist"}
    return Account(
        host=reader.host,
        url=only_url,
        days=chosen,
        sender=sender,
        requests=rows,
        others=_find_other_bots(reader, rows),
        robots=list(reader.robots(rows)),
        overrides=overrides,
        missing=missing,
        now=now,
        host_row=host_row,
        visits=visits,
        domain=reader.paced if options.pace_by is PaceBy.DOMAIN else None,
        is_listed=is_listed,
        has_list=reader.host in {host_of(list_url) for list_url in list_urls},
        is_shut=reader.is_shut(sender, moment),
    )


def _say_nothing(subject: str, when: str, missing: Iterable[Row]) -> str:
    """Return the clause for no rows; never that nothing was sent, if the log may have lost it."""
    reasons = [describe_missing(row).rstrip(".") for row in missing]
    if not reasons:
        return f"no request to {subject} {when}"
    return f"{'. '.join(reasons)}: the log has no request to {subject} {when}"


def is_good(status: int | None) -> bool:
    """Return True for the status of a robots.txt that was read, or confirmed by a 304."""
    return status is not None and (200 <= status < 300 or status == 304)


def _find_other_bots(reader: _Reader, rows: Iterable[Row]) -> list[Row]:
    """Return a row for each other bot with one of these rows, by its newest User-Agent."""
    agents: dict[str, str] = {}
    for row in rows:
        run = reader.run(row["run"])
        if run is not None and not reader.is_of_this_bot(row):
            agents[row["bot"]] = str(run.settings["user_agent"])
    return [{"bot": bot, "user_agent": agent} for bot, agent in agents.items()]


def _hold_ended_at(row: Row, overrides: Iterable[Row]) -> str | None:
    """Return when the operator ended the hold that began with the answer to a request, or None."""
    if not row["hold"] or row["duration"] is None:
        return None
    began_at = datetime.fromisoformat(row["requested_at"]) + timedelta(
        seconds=row["connect_duration"] + row["duration"]
    )
    until = began_at + timedelta(seconds=row["hold"])
    for override in overrides:
        made_at: str = override["made_at"]
        is_in_hold = began_at - _SECOND <= datetime.fromisoformat(made_at) < until
        if override["override"] == "release" and is_in_hold:
            return made_at
    return None
