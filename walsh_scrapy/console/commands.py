"""The commands of ``walsh``, with the arguments and the help of each.

Each command is a function that adds the arguments of the command to a parser. The docstring of the
function is the help: a headline for the list of commands, a description, the examples and the exit
statuses. The module that does the work is imported only when the command runs, so that printing a
help text imports neither Scrapy nor a database.

A function ``read_...`` converts the text of an argument. It raises ValueError, and the message is
shown to the operator.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from contextlib import suppress
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.feeds.stores.entrystore import Position

DAILY: Final = "every day"
RARE: Final = "now and then"
#: In the order of the list of commands.
GROUPS: Final = (DAILY, RARE)


class Command(NamedTuple):
    """One command, or one action of a command ("hosts release")."""

    name: str
    group: str
    function: str  #: does the work: a module below ``walsh_scrapy``, ":", and a name
    needs_project: bool
    has_settings: bool  #: whether it takes ``-s``
    add_arguments: Callable[[argparse.ArgumentParser], None]

    @property
    def help_text(self) -> str:
        """The docstring without its indentation."""
        first, _, rest = (self.add_arguments.__doc__ or "").partition("\n")
        return f"{first}\n{dedent(rest)}".rstrip()

    @property
    def headline(self) -> str:
        """The first line of the help, for the list of commands."""
        return self.help_text.partition("\n")[0].removesuffix(".")


COMMANDS: Final[dict[str, Command]] = {}


def _command(
    group: str, function: str, *, needs_project: bool = True, has_settings: bool = True
) -> Callable[[Callable[[argparse.ArgumentParser], None]], None]:
    """Register a function as a command; ``_hosts_release`` is the action `release` of `hosts`."""

    def register(add_arguments: Callable[[argparse.ArgumentParser], None]) -> None:
        name = add_arguments.__name__.strip("_").replace("_", " ")
        COMMANDS[name] = Command(name, group, function, needs_project, has_settings, add_arguments)

    return register


@_command(DAILY, "tools.status:run")
def _status(parser: argparse.ArgumentParser) -> None:
    """List what needs your attention, the most urgent problem first.

    Sends no request. A problem has one of three levels.

    critical, worth waking somebody:

      crawls     none for three of their usual gaps, and for two hours; or the last
                 one read nothing, although sources on two hosts were due
      blocklist  it never came, or not for a week
      state      damaged, not usable, or less than 128 MiB free for its file
      project    the add-on is switched off, or a file of it cannot be read

    warning, worth a look by day:

      sources    one is due and was not read for a week, unless its server asked for
                 that (Retry-After, 410) or you did; or a quarter of those of the
                 last two days fail: at least five, on two hosts
      crawls     none is recorded, or the last one went wrong
      blocklist  it has not come for two of its refreshes
      disk       less than 1024 MiB free for the file of the state

    note, nothing to do, because the crawler obeys: a source that fails, waits, is
    denied or has moved; a host on hold for over a day; an earlier crawl that was
    killed; a clock that was ahead.

    Sources count if a file declares them that was read in the last 30 days, or with
    --sources those of that file.

    examples:
      walsh status
      walsh status --since-last cron --quiet
      walsh status --quiet --prometheus walsh.prom

    exit status:
      0  there is nothing, or only notes; with --since-last: nothing began
      1  there is a critical problem or a warning; with --since-last: one began
    """
    add_sources(parser)
    add_json(parser)
    add_flag(parser, "--quiet", "print no notes, and nothing if there is nothing else")
    add_value(
        parser,
        "--since-last",
        "NAME",
        "print which critical problems and warnings began or ended since the last call with NAME",
        read_name,
    )
    add_value(
        parser,
        "--prometheus",
        "FILE",
        "also write metrics to FILE, whose name ends in .prom, for the node exporter of Prometheus",
        read_metrics_file,
    )


@_command(DAILY, "tools.lists:run_sources")
def _sources(parser: argparse.ArgumentParser) -> None:
    """List the sources, with their last and next visits.

    Sources with problems come first: gone (410), failing, refused (429, 503), denied
    by a gate, moved permanently, and resent (never answered with 304). Changes of
    the sources file are read first. A source must match all options.

    examples:
      walsh sources
      walsh sources --failing 60d
      walsh sources --json | jq -r 'select(.failures > 2).url'
      walsh sources https://blog.example/feed.xml

    exit status:
      0  success
      1  the sources file cannot be read, or the URL is not one of its sources
    """
    add_sources(parser)
    add_json(parser)
    add_flag(
        parser,
        "--due",
        "only sources that a crawl would visit now, or as soon as their hosts are not on hold",
    )
    add_value(
        parser,
        "--failing",
        "DURATION",
        "only sources that are gone, failing, refused or denied; with a duration such as 60d, "
        "only sources that have failed for at least this long",
        read_duration,
        nargs="?",
        const=0.0,
    )
    add_value(
        parser,
        "--stale",
        "DURATION",
        "only sources without a new entry for this long, such as 90d or 12w",
        read_duration,
    )
    add_flag(parser, "--all", "also sources that are no longer in the sources file")


@_command(DAILY, "tools.lists:run_sources")
def _sources_show(parser: argparse.ArgumentParser) -> None:
    """Show everything about a source.

    Shows its problem and what to do about it, when the next visit is due and why,
    and the outcome of the last visit. The word show may be left out.

    examples:
      walsh sources show https://blog.example/feed.xml --json

    exit status:
      0  success
      1  the URL is not a source
    """
    add_urls(parser, "the URL of a source")
    add_sources(parser, default=argparse.SUPPRESS)
    add_json(parser, default=argparse.SUPPRESS)


@_command(DAILY, "tools.lists:run_sources")
def _sources_resume(parser: argparse.ArgumentParser) -> None:
    """Visit a source again that is gone or failing.

    Makes the source due now, and forgets its failures and its validators, so that
    the next crawl fetches the complete document. Its entries stay known, and its
    host stays on hold. To visit a source that does not fail, use `scrapy crawl feeds
    -a force=1`.

    examples:
      walsh sources resume https://blog.example/feed.xml

    exit status:
      0  success
      1  the URL is not a source
    """
    add_urls(parser, "the URL of a source")
    add_sources(parser, default=argparse.SUPPRESS)


@_command(DAILY, "tools.lists:run_sources")
def _sources_accept(parser: argparse.ArgumentParser) -> None:
    """Take a source as it is now, although its feed names another site.

    If the title of a feed and the site that it links to change at once, its address
    may have been sold. Nothing of it is kept then, until you accept it. This forgets
    the failures and the validators of such a source, which is due at once.

    examples:
      walsh sources accept https://blog.example/feed.xml

    exit status:
      0  success
      1  the URL is not a source
    """
    add_urls(parser, "the URL of a source")
    add_sources(parser, default=argparse.SUPPRESS)


@_command(DAILY, "tools.lists:run_sources")
def _sources_sync(parser: argparse.ArgumentParser) -> None:
    """Load the sources file into the state database.

    Every crawl does this at its start, if the file has changed. A million sources
    take about a minute, so you may want to do it before the crawl.

    examples:
      walsh sources sync

    exit status:
      0  success
      1  the sources file cannot be read
    """
    add_sources(parser, default=argparse.SUPPRESS)


@_command(DAILY, "tools.lists:run_hosts")
def _hosts(parser: argparse.ArgumentParser) -> None:
    """List the hosts that are waiting, and why.

    Hosts on hold come first. Also listed are hosts that were unreachable or
    answered the last request with 500, 502 or 504, and hosts for which you set a
    delay.

    examples:
      walsh hosts
      walsh hosts --json

    exit status:
      0  success
    """
    add_json(parser)


@_command(DAILY, "tools.lists:run_hosts")
def _hosts_release(parser: argparse.ArgumentParser) -> None:
    """End the hold of a host now, and record your reason.

    The next crawl may send requests to the host, at its usual delay. A hold often
    means that the host asked for a pause, so look at `walsh hosts` first.

    examples:
      walsh hosts release blog.example --because "mail of 3 May: go on"

    exit status:
      0  success
      1  the host is not on hold
    """
    add_host(parser, is_required=True)


@_command(DAILY, "tools.lists:run_hosts")
def _hosts_delay(parser: argparse.ArgumentParser) -> None:
    """Set the minimum delay between two requests to a host.

    If the host asks for a longer delay, the longer one applies. 0 removes the delay
    that you set. After a delay longer than WALSH_MAX_WAIT (15 minutes) a later run
    continues, and a request for robots.txt counts too.

    examples:
      walsh hosts delay blog.example 2h --because "they asked"
      walsh hosts delay blog.example 0

    exit status:
      0  success
      1  the delay cannot be stored
    """
    add_host(parser, is_required=False)
    add_value(
        parser, "seconds", "DURATION", "a number of seconds, or a duration such as 2h", read_delay
    )


@_command(DAILY, "tools.lists:run_new")
def _new(parser: argparse.ArgumentParser) -> None:
    """List the new entries, or hand them over to a program.

    Without an option, lists the entries since the start of the last run that found
    any, by source, the newest first. With --reader, lists every entry that this
    reader has not got yet, and remembers that when all are written: if the command
    is killed before, the next call lists them again.

    examples:
      walsh new --since yesterday
      walsh new --reader mailer --json
      walsh new --after 0 --json
      walsh new --changed --since 7d

    exit status:
      0  success, even if no entry is new
      1  an entry cannot be read, or there is no such run
      3  another process reads as this reader, or the position is of another state
    """
    add_since(parser)
    add_value(
        parser,
        "--reader",
        "NAME",
        "the entries that the reader NAME has not got yet; a new reader begins with the first one",
        read_name,
    )
    add_flag(parser, "--from-now", "let a new reader begin with the next entry")
    add_value(
        parser,
        "--after",
        "STATEID:SEQ",
        "the entries after a position that your program keeps, from the column position of --json; "
        "0 for all entries",
        read_position,
    )
    add_value(parser, "--run", "N", "the entries that a run found", read_run)
    add_flag(
        parser,
        "--changed",
        "the known entries whose title has changed instead of the new ones; a reader gets them "
        "independently of those, and --after takes a position from the column changed_position",
    )
    add_json(parser)


@_command(DAILY, "tools.lists:run_runs")
def _runs(parser: argparse.ArgumentParser) -> None:
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
    add_since(parser)
    add_json(parser)


@_command(DAILY, "tools.report:run")
def _report(parser: argparse.ArgumentParser) -> None:
    """Write an HTML page about the last crawl.

    Shows the problems, the waiting hosts, the new entries, the gaps between requests,
    the responses by day, and the runs. The page is one file without scripts, and
    loads nothing from the network.

    examples:
      walsh report -O week.html --since 7d

    exit status:
      0  the page was written
      1  the file already exists, or cannot be written
    """
    add_output(parser)
    add_since(parser)
    add_sources(parser)


@_command(DAILY, "tools.why:run")
def _why(parser: argparse.ArgumentParser) -> None:
    """Explain the requests to a host on some days, to its owner.

    Writes a letter with every request of these days: the response, the gap since
    the previous request and the required gap, and the rule of robots.txt that
    allowed it. The letter also has the denied requests, your changes by hand, the
    next visits, your bot, and how to keep it out, but no other site.
    www.blog.example is another host. Without a day, it is the last one with a
    request, at most WALSH_LOG_DAYS ago.

    examples:
      walsh why blog.example
      walsh why https://blog.example/feed.xml --on 2026-11-17 --json
      walsh why blog.example --since 2026-11-11 --until 2026-11-17

    exit status:
      0  success
      1  the state has nothing about the host or the URL
    """
    add_value(parser, "subject", "URL|HOST", "a host such as blog.example, or one URL")
    add_value(parser, "--on", "DATE", "the day in UTC, such as 2026-11-17", read_date)
    add_value(parser, "--since", "DAY", "the first of several days", read_date)
    add_value(parser, "--until", "DAY", "the last of several days, by default today", read_date)
    add_json(parser)


@_command(DAILY, "tools.discover:run_add")
def _add(parser: argparse.ArgumentParser) -> None:
    """Add the feed of a page, or a list of feeds, to the sources file.

    Looks for the feed of a page as `walsh discover` does, or else for an llms.txt, and
    appends it to the sources file, which must be a .toml or .txt file. If a page has
    several feeds, they are listed and none is added: call the command with the URL of
    one.

    The sources of a .opml, .xml, .txt or .toml file are added without a request. A
    .toml file gets their names, folders and tags too.

    examples:
      walsh add https://news.example/
      walsh add subscriptions.opml

    exit status:
      0  there is a source in the file for every URL and every usable line of a FILE
      1  no source was found for a URL, or a file cannot be read or written
    """
    add_value(
        parser,
        "targets",
        "URL|FILE",
        "a page or a feed, such as https://news.example/, or a file such as subscriptions.opml",
        nargs="+",
    )
    add_sources(parser)
    add_log_level(parser)


@_command(DAILY, "tools.export:run")
def _export(parser: argparse.ArgumentParser) -> None:
    """Export the entries of all runs, or the sources as OPML.

    The extension of FILE selects the format:

      .jsonl  one JSON object per line (also .jl)
      .json   one JSON array
      .csv    with an apostrophe before a text that a spreadsheet would take for a
              formula
      .opml   the declared sources, as WALSH_SOURCES can read them

    The FEED_EXPORT_ settings apply. The file appears only when it is complete, and
    shows the state of one moment.

    examples:
      walsh export -o entries.jsonl
      walsh export -O week.csv --since 7d --no-backfill
      walsh export -o - | jq -r 'select(.kind == "llms").url'

    exit status:
      0  the file was written
      1  the file already exists or cannot be written, or a URL is not a source
    """
    add_output(parser)
    add_since(parser)
    add_sources(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "json", "csv", "opml"),
        help="the format, instead of the extension of FILE (default jsonl on standard output)",
    )
    add_value(
        parser,
        "--source",
        "URL",
        "only entries of this source, even if another source had them first (may be repeated)",
        action="append",
        default=[],
    )
    add_flag(parser, "--no-backfill", "without the entries that a source had at its first visit")


@_command(DAILY, "tools.upkeep:run_backup")
def _backup(parser: argparse.ArgumentParser) -> None:
    """Back up the state database, or copy it to another database.

    Makes a consistent copy of an SQLite database, even during a crawl. For
    PostgreSQL use pg_dump. The signing key, the sources file and the settings are
    not part of the database: back them up as well.

    With a URL it copies all rows to another database, from SQLite to PostgreSQL or
    back, and prints the setting that names it. That database has no state yet, or
    one without rows. It is written completely or not at all. Give the password of
    PostgreSQL in PGPASSWORD or ~/.pgpass. What crawls write to the old database
    after the copy began is not copied.

    examples:
      walsh backup -o walsh-backup.sqlite3
      walsh backup -o postgresql+psycopg://walsh@db.internal/walsh
      walsh backup -o sqlite:////srv/walsh/new.sqlite3

    exit status:
      0  the copy was written
      1  the file already exists or cannot be written, or the state database is on
         PostgreSQL
    """
    add_output(parser, "FILE|URL", "write to a new FILE, or to the empty database at a URL")


@_command(DAILY, "tools.standalone:run_init", needs_project=False, has_settings=False)
def _init(parser: argparse.ArgumentParser) -> None:
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
    add_value(parser, "folder", "FOLDER", "the folder of the project")


@_command(RARE, "tools.discover:run_discover")
def _discover(parser: argparse.ArgumentParser) -> None:
    """Show the feeds of a site, as lines for the sources file.

    Requests the page, and up to three feeds that its HTTP headers or its HTML head
    link to. If none of these is a feed, /llms.txt is requested too. The sources are
    printed as TOML, everything else as comments; the sources file is not changed.

    examples:
      walsh discover https://docs.example/ >> sources.toml

    exit status:
      0  a source was found for every URL
      1  no source was found for a URL, or the URL could not be requested
    """
    add_urls(parser, "a page, such as https://docs.example/")
    add_json(parser)
    add_log_level(parser)


@_command(RARE, "tools.mayfetch:run", needs_project=False)
def _mayfetch(parser: argparse.ArgumentParser) -> None:
    """Show whether your bot may fetch a URL, and why.

    In a project, prints the answer of each gate: the blocklist, the line of
    robots.txt that decides, your own gates, and the delay of the host. The URL
    itself is not requested, but robots.txt and the blocklist are fetched if the
    stored copies are out of date. With --robots, a robots.txt file is checked for
    any bot instead, and no request is sent. The output also says if Scrapy's own
    parser, Protego, decides differently.

    examples:
      walsh mayfetch https://blog.example/feed.xml --json
      walsh mayfetch --robots robots.txt --user-agent GPTBot https://a.example/

    exit status:
      0  all URLs are allowed
      1  a URL is denied or undecided
    """
    add_urls(parser, "a URL that begins with http:// or https://")
    add_value(parser, "--robots", "FILE", "a robots.txt, or - for standard input")
    add_value(
        parser,
        "--user-agent",
        "NAME",
        "with --robots, the name or the User-Agent of a bot, or * (may be repeated; default "
        "your project's bot, or Walsh-Research without a project)",
        action="append",
    )
    add_flag(
        parser,
        "--offline",
        "send no request, and answer from the stored blocklist and robots.txt, without your gates",
    )
    add_json(parser)
    add_log_level(parser)


@_command(RARE, "tools.attest:run")
def _attest(parser: argparse.ArgumentParser) -> None:
    """Audit all recorded requests and entries by a checklist.

    Prints for each rule of the checklist whether the records show that the crawls
    kept the rule, how many requests or entries show it, and what broke it.

    examples:
      walsh attest --since 2026-11-01
      walsh attest --json | jq -r 'select(.verdict != "holds").row'

    exit status:
      0  no rule with the level MUST is broken
      1  a MUST is broken, or there is nothing to audit
    """
    add_since(parser)
    add_json(parser)


@_command(RARE, "tools.upkeep:run_forget")
def _forget(parser: argparse.ArgumentParser) -> None:
    """Delete what the state has of a source or of a host.

    Deletes the requests, the denials, the copies of robots.txt and llms.txt, and the
    entries. Of entries their keys stay, so that no other source brings them back as
    new; the pacing of the host and what you changed by hand stay too. What is in
    backups, logs and exports is not touched. Remove a source from the sources file
    first.

    examples:
      walsh forget https://blog.example/feed.xml
      walsh forget blog.example --because "mail of 3 May"

    exit status:
      0  success
      1  nothing is recorded
      3  a source is still declared, or a crawl uses the host now
    """
    add_value(parser, "target", "URL|HOST", "the URL of a source, or a host such as blog.example")
    add_value(parser, "--because", "TEXT", "your reason, in one line; it is recorded", _read_reason)
    add_sources(parser)


@_command(RARE, "tools.upkeep:run_upgrade")
def _upgrade(_: argparse.ArgumentParser) -> None:
    """Upgrade the state database after an update of this package.

    Brings the tables that an older version wrote to those of this one, as the next
    crawl would do. It waits for half a minute until other crawls have ended. An
    SQLite database is copied before that, to a file beside it.

    examples:
      walsh upgrade

    exit status:
      0  the state database has the tables of this version
      3  it cannot be upgraded: the message says why, and nothing has changed
    """


@_command(RARE, "tools.standalone:run_keys", needs_project=False)
def _keys(_: argparse.ArgumentParser) -> None:
    """Create a key for signing requests, and the key directory.

    With signed requests, a site can verify that a request comes from your bot.

    examples:
      walsh keys new key.pem

    exit status:
      0  success
    """


@_command(RARE, "tools.standalone:run_keys", needs_project=False)
def _keys_new(parser: argparse.ArgumentParser) -> None:
    """Create a private key, and print its id.

    It is an Ed25519 key in a PEM file that only you can read.

    examples:
      walsh keys new key.pem

    exit status:
      0  the key was written
      1  the file already exists, or cannot be written
    """
    add_value(parser, "file", "FILE", "a new file, such as key.pem")


@_command(RARE, "tools.standalone:run_keys", needs_project=False)
def _keys_directory(parser: argparse.ArgumentParser) -> None:
    """Print your public keys as a JSON Web Key Set, to publish.

    Without FILE, the key file that WALSH_SIGNING_KEY names is read. Publish the line
    with its line end, and with the header fields of --headers.

    examples:
      walsh keys directory key.pem next.pem > directory.json
      walsh keys directory --headers --days 30

    exit status:
      0  success
      1  a key cannot be read
    """
    add_value(parser, "files", "FILE", "a private key", nargs="*")
    add_flag(
        parser,
        "--headers",
        "print the HTTP header fields to publish the keys with, signed by each key for the host "
        "of WALSH_SIGNATURE_AGENT",
    )
    add_value(
        parser,
        "--days",
        "DAYS",
        "with --headers, days for which the signatures are valid, from 1 to 400 (default 30)",
        read_days,
    )


@_command(RARE, "tools.standalone:run_lint", needs_project=False, has_settings=False)
def _lint(parser: argparse.ArgumentParser) -> None:
    """Find mistakes in a robots.txt.

    Prints one line for each finding. An error is a line that at least some crawlers
    ignore or misread: an unknown field, a missing colon, a rule before any group, a
    path that matches nothing, a bot without rules, HTML, bytes that are not UTF-8,
    or text beyond 500 KiB. A note is a line that is correct, but easily overlooked.

    examples:
      walsh lint robots.txt
      cat robots.txt | walsh lint - --json

    exit status:
      0  there are no errors; there may be notes
      1  there is at least one error
    """
    add_value(parser, "file", "FILE", "a robots.txt, or - for standard input", nargs="+")
    add_json(parser)


@_command(RARE, "testing.demo:run", needs_project=False, has_settings=False)
def _demo(_: argparse.ArgumentParser) -> None:
    """Crawl sixteen simulated sites, and check the crawls.

    Crawls web servers on this machine twice, and checks in their logs whether the
    crawler was polite. Takes less than a minute, and needs no network.

    examples:
      walsh demo

    exit status:
      0  all rules were kept
      1  a rule was broken, or a crawl failed
    """


@_command(RARE, "testing.conformance.conformance:run", needs_project=False, has_settings=False)
def _conformance(parser: argparse.ArgumentParser) -> None:
    """Test how polite a crawler is, against simulated sites.

    Starts web servers on this machine, runs COMMAND up to five times, for less than
    five minutes, and judges the crawler by the logs of the servers. These
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
      walsh conformance --rules robots-first -- wget -q -O - -i {seeds}

    exit status:
      0  no scenario with the level MUST failed
      1  a MUST failed or was not tested, or nothing passed
    """
    add_json(parser, "one JSON object")
    add_value(
        parser, "--rules", "RULES", "only these rules (R1 to R9) or scenarios, separated by commas"
    )
    add_value(parser, "--user-agent", "TEXT", "the exact User-Agent that the crawler must send")
    add_value(
        parser,
        "--patience",
        "N",
        "give the crawler N times as much time",
        read_patience,
        default=1.0,
    )
    add_flag(
        parser,
        "--proxy",
        "let the crawler reach the sites through a proxy (the default except on Linux)",
        default=None,
    )
    add_value(
        parser,
        "crawler",
        "COMMAND",
        "after --, the command that runs the crawler",
        nargs=argparse.REMAINDER,
    )


_MAX_DAYS: Final = 400
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RUN: Final = re.compile(r"[0-9]{1,18}")


def add_settings(parser: argparse.ArgumentParser, *, is_action: bool) -> None:
    """Add the option ``-s``, which may come before or after the name of an action."""
    parser.add_argument(
        "-s",
        "--set",
        metavar="NAME=VALUE",
        action="append",
        type=_typed(_read_setting),
        dest="action_settings" if is_action else "settings",
        default=argparse.SUPPRESS,
        help="override a setting of the project (may be repeated)",
    )


def add_flag(parser: argparse.ArgumentParser, name: str, text: str, **options: Any) -> None:  # noqa: ANN401
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=text, **options)


def add_value(
    parser: argparse.ArgumentParser,
    name: str,
    metavar: str,
    text: str,
    read: Callable[[str], Any] = str,
    **options: Any,  # noqa: ANN401 - passed on to argparse
) -> None:
    """Add an argument with a value, which ``read`` converts."""
    parser.add_argument(name, metavar=metavar, type=_typed(read), help=text, **options)


def add_urls(parser: argparse.ArgumentParser, text: str) -> None:
    """Add one or more URLs."""
    add_value(parser, "urls", "URL", text, nargs="+")


def add_host(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    """Add a host, and the option ``--because``."""
    add_value(parser, "host", "HOST", "a host name such as blog.example")
    add_value(
        parser,
        "--because",
        "TEXT",
        "your reason, in one line; it is recorded",
        _read_reason,
        required=is_required,
    )


def add_json(
    parser: argparse.ArgumentParser,
    text: str = "one JSON object per line",
    **options: Any,  # noqa: ANN401 - passed on to argparse
) -> None:
    """Add the option ``--json``."""
    add_flag(parser, "--json", f"print {text}", **options)


def add_sources(parser: argparse.ArgumentParser, **options: Any) -> None:  # noqa: ANN401
    """Add the option ``--sources``."""
    add_value(parser, "--sources", "FILE", "the sources file (default WALSH_SOURCES)", **options)


def add_since(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--since``."""
    text = "only what came since today, yesterday, 7d (7 days), a date or an RFC 3339 time"
    add_value(parser, "--since", "WHEN", text, _read_moment)


def add_output(
    parser: argparse.ArgumentParser,
    metavar: str = "FILE",
    text: str = "write to a new FILE, or - for standard output",
) -> None:
    """Add the options ``-o``, which ``text`` describes, and ``-O``."""
    parser.add_argument("-o", "--output", metavar=metavar, help=text)
    parser.add_argument(
        "-O",
        "--overwrite-output",
        metavar="FILE",
        help="write to FILE, and replace it if it exists",
    )


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Add the option ``-L``."""
    parser.add_argument("-L", "--loglevel", metavar="LEVEL", help="log level (default WARNING)")


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


def read_duration(text: str) -> float:
    """Return a duration in seconds."""
    from walsh_scrapy.policy.durations import parse_typed_duration

    try:
        return parse_typed_duration(text.strip()).total_seconds()
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a duration, such as 90d, 12w or P90D") from None


def read_delay(text: str) -> float:
    """Return a delay in seconds, from seconds or a duration."""
    for read in (float, read_duration):
        with suppress(ValueError):
            seconds = read(text.strip())
            if 0.0 <= seconds < math.inf:
                return seconds
    raise ValueError(f"{text!r} is not a number of seconds or a duration, such as 90 or 2h")


def read_date(text: str) -> str:
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


def read_days(text: str) -> int:
    """Return a number of days."""
    if not (text.isdecimal() and 1 <= int(text) <= _MAX_DAYS):
        raise ValueError(f"{text} is not a number of days from 1 to {_MAX_DAYS}")
    return int(text)


def read_patience(text: str) -> float:
    """Return a factor of at least 1."""
    with suppress(ValueError):
        factor = float(text)
        if 1.0 <= factor < math.inf:
            return factor
    raise ValueError(f"{text} is not a number of at least 1")


def read_name(text: str) -> str:
    """Return a name that the state keeps, such as that of a reader."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text[:80]!r} is not a name of 1 to 64 letters, digits, dots, hyphens and underscores"
        )
    return text


def read_metrics_file(text: str) -> str:
    """Return the name of a file that the node exporter reads."""
    if not text.endswith(".prom"):
        raise ValueError(f"{text!r} does not end in .prom, so the node exporter would not read it")
    return text


def read_position(text: str) -> Position:
    """Return the position of an entry."""
    from walsh_scrapy.feeds.stores.entrystore import Position

    return Position.parse(text)


def read_run(text: str) -> int:
    """Return the number of a run."""
    if not _RUN.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not the number of a run")
    return int(text)
