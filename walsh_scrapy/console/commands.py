"""The commands of ``walsh``, with the arguments and the help of each.

Each command is a function that adds the arguments of the command to a parser. The docstring of the
function is the help: a headline for the list of commands, a description, the examples and the exit
statuses. The module that does the work is imported only when the command runs, so that printing a
help text imports neither Scrapy nor a database.
"""

from __future__ import annotations

import argparse
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Parser: TypeAlias = argparse.ArgumentParser

START: Final = "getting started"
LOOK: Final = "looking at crawls"
DATA: Final = "taking data out"
SITES: Final = "for site owners and audits"
CRAWLERS: Final = "for checking any crawler"
#: In the order of the list of commands.
GROUPS: Final = (START, LOOK, DATA, SITES, CRAWLERS)
_MAX_DAYS: Final = 400
_DAY: Final = 86_400


class Command(NamedTuple):
    """One command, or one action of a command ("hosts release")."""

    name: str
    group: str
    module: str  #: the module below ``walsh_scrapy`` that has the function ``run``
    needs_project: bool
    has_settings: bool  #: whether it takes ``-s``
    add_arguments: Callable[[Parser], None]

    @property
    def help_text(self) -> str:
        """The docstring without its indentation."""
        lines = (self.add_arguments.__doc__ or "").splitlines()
        return "\n".join(line.removeprefix("    ") for line in lines)

    @property
    def headline(self) -> str:
        """The first line of the help, for the list of commands."""
        return self.help_text.partition("\n")[0].removesuffix(".")


COMMANDS: Final[dict[str, Command]] = {}


def _command(
    group: str, module: str, *, needs_project: bool = True, has_settings: bool = True
) -> Callable[[Callable[[Parser], None]], None]:
    """Register a function as a command; ``_hosts_release`` is the action `release` of `hosts`."""

    def register(add_arguments: Callable[[Parser], None]) -> None:
        name = add_arguments.__name__.strip("_").replace("_", " ")
        COMMANDS[name] = Command(name, group, module, needs_project, has_settings, add_arguments)

    return register


@_command(START, "tools.init", needs_project=False, has_settings=False)
def _init(parser: Parser) -> None:
    """Create a new project that crawls feeds.

    Creates a Scrapy project in FOLDER: settings.py, where you fill in the name of
    your bot, sources.toml with one feed, and the spiders feeds and llms. Existing
    files are never overwritten.

    examples:
      walsh init my-feeds

    exit status:
      0  the project was created
      1  one of its files already exists, or cannot be written
    """
    _value(parser, "folder", "FOLDER", "the folder of the project; it is created if needed")


@_command(START, "tools.add")
def _add(parser: Parser) -> None:
    """Find the feed of a page, and add it to the sources file.

    Looks for a feed as `walsh discover` does, and appends it to the sources file,
    which must be a .toml or .txt file. If a page has several feeds, they are listed
    and none is added: call the command again with the URL of one of them.

    examples:
      walsh add https://news.example/

    exit status:
      0  there is a source in the file for every URL
      1  no source was found for a URL, or the file cannot be written
    """
    _add_urls(parser, "a page or a feed, such as https://news.example/")
    _add_sources(parser)
    _add_log_level(parser)


@_command(START, "tools.discover")
def _discover(parser: Parser) -> None:
    """Show the feeds of a site, as lines for the sources file.

    Requests the page, and up to three feeds that its HTTP headers or its HTML head
    link to. If none of these is a feed, /llms.txt is requested too. robots.txt, the
    blocklist and all delays are respected. The sources are printed as TOML,
    everything else as comments; the sources file is not changed.

    examples:
      walsh discover https://docs.example/
      walsh discover https://docs.example/ >> sources.toml

    exit status:
      0  a source was found for every URL
      1  no source was found for a URL, or the URL could not be requested
    """
    _add_urls(parser, "a page, such as https://docs.example/")
    _add_json(parser)
    _add_log_level(parser)


@_command(START, "tools.keys", needs_project=False)
def _keys(_: Parser) -> None:
    """Create a key for signing requests, and the key directory.

    With signed requests (Web Bot Auth), a site can verify that a request really
    comes from your bot. The directory is the file with your public keys, which you
    publish on your own site.

    examples:
      walsh keys new key.pem
      walsh keys directory key.pem > directory.json

    exit status:
      0  success
      1  the key cannot be read or written
    """


@_command(START, "tools.keys", needs_project=False)
def _keys_new(parser: Parser) -> None:
    """Create a private key, and print its id.

    The key is an Ed25519 key. Only you can read the file. An existing file is never
    overwritten.

    examples:
      walsh keys new key.pem

    exit status:
      0  the key was written
      1  the file already exists, or cannot be written
    """
    _value(parser, "file", "FILE", "a new file, such as key.pem")


@_command(START, "tools.keys", needs_project=False)
def _keys_directory(parser: Parser) -> None:
    """Print your public keys as a JSON Web Key Set, to publish.

    Without FILE, the key file that WALSH_SIGNING_KEY names is read.

    examples:
      walsh keys directory key.pem old.pem > directory.json
      walsh keys directory --headers --days 30

    exit status:
      0  success
      1  a key cannot be read
    """
    _value(parser, "files", "FILE", "a private key", nargs="*")
    _flag(
        parser,
        "--headers",
        "print the HTTP header fields to publish the keys with, signed by each key",
    )
    valid = "with --headers, days for which the signatures are valid (default 30)"
    _value(parser, "--days", "DAYS", valid, _read_days)


@_command(START, "testing.demo", needs_project=False, has_settings=False)
def _demo(_: Parser) -> None:
    """Crawl sixteen simulated sites, and check the crawls.

    Starts web servers for sixteen sites on this machine, runs `scrapy crawl feeds`
    against them twice, and checks in the logs of the servers whether the crawler
    was polite. Takes less than a minute, and needs no network.

    examples:
      walsh demo

    exit status:
      0  all rules were kept
      1  a rule was broken, or a crawl failed
    """


@_command(LOOK, "tools.status")
def _status(parser: Parser) -> None:
    """List what needs your attention, the most urgent problem first.

    Checks the last crawls, the blocklist, the sources that fail, the hosts that
    are on hold, the sources file, the free disk space and the clock. Sends no
    request, so a monitor may call it often.

    examples:
      walsh status
      walsh status --quiet
      walsh status --json
      walsh status --prometheus walsh.prom

    exit status:
      0  there is no problem
      1  there is at least one problem
    """
    _add_sources(parser)
    _add_json(parser)
    _flag(parser, "--quiet", "print nothing if there is no problem, for cron jobs")
    _value(
        parser,
        "--prometheus",
        "FILE",
        "also write metrics for Prometheus to FILE, whose name ends in .prom",
    )


@_command(LOOK, "tools.sources")
def _sources(parser: Parser) -> None:
    """List the sources, with their last and next visits.

    Sources with problems come first. `walsh sources URL`, with a URL instead of an
    action, shows everything about one source, and what to do about its problem.

    examples:
      walsh sources
      walsh sources --due
      walsh sources --failing 60d
      walsh sources https://news.example/feed.xml

    exit status:
      0  success
      1  the sources file cannot be read, or the URL is not one of its sources
    """
    _add_sources(parser)
    _add_json(parser)
    due = "only sources that a crawl would visit now, or as soon as their hosts are not on hold"
    _flag(parser, "--due", due)
    failing = (
        "only sources that are gone, failing, refused or denied; with a duration such as 60d, "
        "only sources that have failed for at least this long"
    )
    _value(parser, "--failing", "DURATION", failing, _read_duration, nargs="?", const=0.0)
    stale = "only sources without a new entry for at least this long, such as 90d or 12w"
    _value(parser, "--stale", "DURATION", stale, _read_duration)
    _flag(parser, "--all", "also sources that are no longer in the sources file")


@_command(LOOK, "tools.sources")
def _sources_show(parser: Parser) -> None:
    """Show everything about a source, like `walsh sources URL`.

    Shows the problem of the source and what to do about it, when the next visit is
    due and why, the outcome of the last visit, the ETag and Last-Modified values,
    and the host. `walsh why URL` shows the requests.

    examples:
      walsh sources https://news.example/feed.xml

    exit status:
      0  success
      1  the URL is not a source
    """
    _add_urls(parser, "the URL of a source")
    _add_sources(parser, default=argparse.SUPPRESS)
    _add_json(parser, default=argparse.SUPPRESS)


@_command(LOOK, "tools.sources")
def _sources_resume(parser: Parser) -> None:
    """Visit a source again that is gone or failing.

    Makes the source due now, forgets its failures and its validators, so that the
    next crawl fetches the complete document.

    examples:
      walsh sources resume https://news.example/feed.xml

    exit status:
      0  success
      1  the URL is not a source
    """
    _add_urls(parser, "the URL of a source")
    _add_sources(parser, default=argparse.SUPPRESS)


@_command(LOOK, "tools.sources")
def _sources_sync(parser: Parser) -> None:
    """Load the sources file into the state database.

    Every crawl does this at its start. A million sources take about a minute, so
    you may want to do it before the crawl.

    examples:
      walsh sources sync

    exit status:
      0  success
      1  the sources file cannot be read
    """
    _add_sources(parser, default=argparse.SUPPRESS)


@_command(LOOK, "tools.hosts")
def _hosts(parser: Parser) -> None:
    """List the hosts that are waiting, and why.

    Hosts on hold come first. Also listed are hosts that were unreachable or
    answered the last request with an error, and hosts for which you set a delay.

    examples:
      walsh hosts
      walsh hosts --json
      walsh hosts release blog.example --because "they wrote"
      walsh hosts delay blog.example 2h

    exit status:
      0  success
      1  the host to release is not on hold
    """
    _add_json(parser)


@_command(LOOK, "tools.hosts")
def _hosts_release(parser: Parser) -> None:
    """End the hold of a host now, and record your reason.

    The next crawl may send requests to the host at once. A hold often means that
    the host asked for a pause, so look at `walsh hosts` first.

    examples:
      walsh hosts release blog.example --because "they wrote"

    exit status:
      0  success
      1  the host is not on hold
    """
    _add_host(parser, is_required=True)


@_command(LOOK, "tools.hosts")
def _hosts_delay(parser: Parser) -> None:
    """Set the minimum delay between two requests to a host.

    If the host asks for a longer delay, the longer one applies. 0 removes the delay
    that you set.

    examples:
      walsh hosts delay blog.example 2h --because "they asked"
      walsh hosts delay blog.example 0

    exit status:
      0  success
      1  the delay cannot be stored
    """
    _add_host(parser, is_required=False)
    _value(
        parser, "seconds", "DURATION", "a number of seconds, or a duration such as 2h", _read_delay
    )


@_command(LOOK, "tools.new")
def _new(parser: Parser) -> None:
    """List the new entries by source, the newest first.

    Without --since, lists the entries since the start of the last run that found
    any.

    examples:
      walsh new
      walsh new --since yesterday
      walsh new --since 7d --json

    exit status:
      0  success, even if no entry is new
      1  an entry cannot be read
    """
    _add_since(parser, "only entries first seen")
    _add_json(parser)


@_command(LOOK, "tools.runs")
def _runs(parser: Parser) -> None:
    """List the runs, and how each of them ended.

    Runs with a problem in the last two days come first, then the running ones. A
    run is listed as killed if it has not ended, and was silent for 15 minutes more
    than WALSH_MAX_WAIT.

    examples:
      walsh runs
      walsh runs --since 7d --json

    exit status:
      0  success
    """
    _add_since(parser, "only runs that started")
    _add_json(parser)


@_command(LOOK, "tools.report")
def _report(parser: Parser) -> None:
    """Write an HTML page about the last crawl.

    Shows the problems and what to do about them, the hosts that are waiting, the
    new entries, the gaps between requests, and the responses. The page is one file
    without scripts, and loads nothing from the network.

    examples:
      walsh report -o report.html
      walsh report -O week.html --since 7d

    exit status:
      0  the page was written
      1  the file already exists, or cannot be written
    """
    _add_output(parser)
    _add_since(parser, "report on everything")
    _add_sources(parser)


@_command(DATA, "tools.export")
def _export(parser: Parser) -> None:
    """Export the entries of all runs, or the sources as OPML.

    The extension of FILE selects the format: .jsonl (or .jl), .json and .csv have
    all entries, .atom is a feed of the newest 500 entries, and .opml has the
    declared sources. The file appears only when it is complete.

    examples:
      walsh export -o entries.jsonl
      walsh export -O week.csv --since 7d
      walsh export -o - | jq -r .url

    exit status:
      0  the file was written
      1  the file already exists or cannot be written, or a URL is not a source
    """
    _add_output(parser)
    _add_since(parser, "only entries first seen")
    _add_sources(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "json", "csv", "opml", "atom"),
        help="the format, instead of the extension of FILE (default for -o - is jsonl)",
    )
    source = "only entries of this source (may be repeated)"
    _value(parser, "--source", "URL", source, action="append", default=[])
    _flag(parser, "--no-backfill", "without the entries that a source had at its first visit")


@_command(DATA, "tools.backup")
def _backup(parser: Parser) -> None:
    """Back up the state database to one file, even during a crawl.

    Makes a consistent copy of an SQLite database, without making a crawl wait. For
    PostgreSQL use pg_dump. The signing key, the sources file and the settings are
    not part of the database: back them up as well.

    examples:
      walsh backup -o walsh-backup.sqlite3

    exit status:
      0  the copy was written
      1  the file already exists or cannot be written, or the state database is on
         PostgreSQL
    """
    _add_output(parser, takes_stdout=False)


@_command(SITES, "tools.why")
def _why(parser: Parser) -> None:
    """Explain the requests to a host on one day, to its owner.

    Writes a letter with every request of the day: the response, the gap since the
    previous request and the required gap, and the rule of robots.txt that allowed
    it. The letter also names the requests that were denied, the next visits, your
    bot, and how to keep it out. Without --on, the day is the last one with a
    request.

    examples:
      walsh why blog.example
      walsh why blog.example --on 2026-11-17
      walsh why https://blog.example/feed.xml --json

    exit status:
      0  success
      1  there is no request to the host or the URL
    """
    _value(parser, "subject", "URL|HOST", "a host such as blog.example, or one URL")
    _value(parser, "--on", "DATE", "the day in UTC, such as 2026-11-17", _read_date)
    _add_json(parser)


@_command(SITES, "tools.mayfetch", needs_project=False)
def _mayfetch(parser: Parser) -> None:
    """Show whether your bot may fetch a URL, and why.

    In a project, prints the answer of each check: the blocklist, robots.txt, and
    the delay of the host. The URL itself is not requested, but robots.txt and the
    blocklist are fetched if the stored copies are out of date. With --robots, a
    robots.txt file is checked for any bot instead, and no request is sent.

    examples:
      walsh mayfetch https://blog.example/feed.xml --json
      walsh mayfetch --robots robots.txt --user-agent GPTBot https://a.example/

    exit status:
      0  all URLs are allowed
      1  a URL is denied or undecided; the output says which, and why
    """
    _add_urls(parser, "a URL that begins with http:// or https://")
    _value(parser, "--robots", "FILE", "a robots.txt, or - for standard input")
    bot = "with --robots, the name or the User-Agent of a bot (may be repeated)"
    _value(parser, "--user-agent", "NAME", bot, action="append")
    _flag(parser, "--offline", "send no request, and answer from the stored copies")
    _add_json(parser)
    _add_log_level(parser)


@_command(SITES, "tools.attest")
def _attest(parser: Parser) -> None:
    """Audit all recorded requests and entries by a checklist.

    Prints for each rule of the checklist whether the records show that the crawls
    kept the rule, how many requests or entries show it, and what broke it.

    examples:
      walsh attest
      walsh attest --since 2026-11-01 --json > attestation.jsonl

    exit status:
      0  no rule with the level MUST is broken
      1  a MUST is broken, or there is nothing to audit
    """
    _add_since(parser, "only requests and entries")
    _add_json(parser)


@_command(CRAWLERS, "tools.lint", needs_project=False, has_settings=False)
def _lint(parser: Parser) -> None:
    """Find mistakes in a robots.txt.

    Prints one line for each finding. An error is a line that at least some crawlers
    ignore or misread. A note is a line that is correct, but easily overlooked.

    examples:
      walsh lint robots.txt
      curl -s https://blog.example/robots.txt | walsh lint -

    exit status:
      0  there are no errors; there may be notes
      1  there is at least one error
    """
    _value(parser, "file", "FILE", "a robots.txt, or - for standard input", nargs="+")
    _add_json(parser)


@_command(CRAWLERS, "testing.conformance.conformance", needs_project=False, has_settings=False)
def _conformance(parser: Parser) -> None:
    """Test how polite a crawler is, against simulated sites.

    Starts web servers on this machine, runs COMMAND up to five times, for less than
    five minutes in total, and judges the crawler by the logs of the servers. These
    words in COMMAND are replaced:

      {seeds}      a file with the URLs to crawl, one per line
      {pages}      a file with the URLs of pages without a feed
      {folder}     a folder that is kept between the runs
      {ca}         the CA certificate to trust
      {key}        an Ed25519 key to sign requests with
      {blocklist}  the URL of a list of hosts that opted out
      {proxy}      the URL of the proxy

    The environment variables CONFORMANCE_SEEDS, CONFORMANCE_PAGES and so on have
    the same values.

    examples:
      walsh conformance --rules R1 -- wget -i {seeds}

    exit status:
      0  no scenario with the level MUST failed
      1  a MUST failed or was not tested, or nothing passed
    """
    _add_json(parser, "one JSON object")
    rules = "only these rules (R1 to R9) or scenarios, separated by commas"
    _value(parser, "--rules", "RULES", rules)
    _value(parser, "--user-agent", "TEXT", "the exact User-Agent that the crawler must send")
    patience = "give the crawler N times as much time"
    _value(parser, "--patience", "N", patience, _read_patience, default=1.0)
    proxy = "let the crawler reach the sites through a proxy (the default except on Linux)"
    _flag(parser, "--proxy", proxy, default=None)
    crawler = "after --, the command that runs the crawler"
    _value(parser, "crawler", "COMMAND", crawler, nargs=argparse.REMAINDER)


# ---- arguments of several commands ----


def add_settings(parser: Parser, *, is_action: bool) -> None:
    """Add the option ``-s``, which may come before or after the name of an action."""
    parser.add_argument(
        *("-s", "--set"),
        metavar="NAME=VALUE",
        action="append",
        type=_typed(_read_setting),
        dest="action_settings" if is_action else "settings",
        default=argparse.SUPPRESS,
        help="override a setting of the project (may be repeated)",
    )


def _flag(parser: Parser, name: str, text: str, **options: Any) -> None:  # noqa: ANN401
    parser.add_argument(name, action="store_true", help=text, **options)


def _value(
    parser: Parser,
    name: str,
    metavar: str,
    text: str,
    read: Callable[[str], Any] = str,
    **options: Any,  # noqa: ANN401 - passed on to argparse
) -> None:
    parser.add_argument(name, metavar=metavar, type=_typed(read), help=text, **options)


def _add_urls(parser: Parser, text: str) -> None:
    _value(parser, "urls", "URL", text, nargs="+")


def _add_host(parser: Parser, *, is_required: bool) -> None:
    _value(parser, "host", "HOST", "a host name such as blog.example")
    reason = "your reason, in one line; it is recorded"
    _value(parser, "--because", "TEXT", reason, _read_reason, required=is_required)


def _add_json(parser: Parser, text: str = "one JSON object per line", **options: Any) -> None:  # noqa: ANN401
    _flag(parser, "--json", f"print {text}", **options)


def _add_sources(parser: Parser, **options: Any) -> None:  # noqa: ANN401
    _value(parser, "--sources", "FILE", "the sources file (default WALSH_SOURCES)", **options)


def _add_since(parser: Parser, subject: str) -> None:
    text = f"{subject} since today, yesterday, 1d (a day ago), a date or an RFC 3339 time"
    _value(parser, "--since", "WHEN", text, _read_moment)


def _add_output(parser: Parser, *, takes_stdout: bool = True) -> None:
    """Add the options ``-o`` and ``-O``."""
    new = "write to a new FILE, or - for standard output" if takes_stdout else "write to a new FILE"
    parser.add_argument("-o", "--output", metavar="FILE", help=new)
    again = "write to FILE, and replace it if it exists"
    parser.add_argument("-O", "--overwrite-output", metavar="FILE", help=again)


def _add_log_level(parser: Parser) -> None:
    text = "log level (default WARNING)"
    parser.add_argument("-L", "--loglevel", metavar="LEVEL", help=text)


# ---- values ----


def _typed(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a ``type`` for ``add_argument`` that reports the message of a ValueError."""

    def checked(text: str) -> Any:  # noqa: ANN401 - the type that ``read`` returns
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _read_setting(text: str) -> tuple[str, str]:
    name, is_setting, value = text.partition("=")
    if not is_setting:
        raise ValueError(f"{text!r} is not a setting; write NAME=VALUE")
    return name, value


def _read_moment(text: str) -> float:
    from walsh_scrapy.policy.durations import parse_since

    return parse_since(text, time.time())


def _read_duration(text: str) -> float:
    from walsh_scrapy.policy.durations import parse_typed_duration

    try:
        return parse_typed_duration(text.strip()).total_seconds()
    except ValueError:
        problem = f"{text[:40]!r} is not a duration, such as 90d, 12w or P90D"
        raise ValueError(problem) from None


def _read_delay(text: str) -> float:
    for read in (float, _read_duration):
        with suppress(ValueError):
            seconds = read(text.strip())
            if 0.0 <= seconds < math.inf:
                return seconds
    raise ValueError(f"{text!r} is not a number of seconds or a duration, such as 90 or 2h")


def _read_date(text: str) -> str:
    """Return the date in the form `2026-11-17`."""
    from datetime import UTC, datetime

    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date().isoformat()
    except ValueError:
        raise ValueError(f"{text!r} is not a date, such as 2026-11-17") from None


def _read_reason(text: str) -> str:
    if not text.strip() or any(ord(character) < 32 for character in text):
        raise ValueError('write one line of text, such as "mail of 3 May: go on"')
    return text.strip()


def _read_days(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= _MAX_DAYS):
        raise ValueError(f"{text} is not a number of days from 1 to {_MAX_DAYS}")
    return int(text)


def _read_patience(text: str) -> float:
    with suppress(ValueError):
        factor = float(text)
        if 1.0 <= factor < math.inf:
            return factor
    raise ValueError(f"{text} is not a number of at least 1")
