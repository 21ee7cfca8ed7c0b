"""The commands of ``walsh``: the arguments of each, and its help.

A command is a function that adds its arguments. Its docstring is its help, line by line: the first
one is in the list of commands, and the description, the examples and the exit statuses follow. The
module that does the work is imported when the command runs: no help imports Scrapy or a database.
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
    module: str  #: has the function ``run``, below ``walsh_scrapy``
    needs_project: bool
    has_settings: bool  #: whether it takes ``-s``
    add_arguments: Callable[[Parser], None]

    @property
    def help_text(self) -> str:
        """The help without the arguments; its first line is the headline."""
        lines = (self.add_arguments.__doc__ or "").splitlines()
        return "\n".join(line.removeprefix("    ") for line in lines)

    @property
    def headline(self) -> str:
        """One line about the command."""
        return self.help_text.partition("\n")[0].removesuffix(".")


COMMANDS: Final[dict[str, Command]] = {}


def _command(
    group: str, module: str, *, needs_project: bool = True, has_settings: bool = True
) -> Callable[[Callable[[Parser], None]], None]:
    """Make a command of a function; ``hosts_release`` is the action `release` of `hosts`."""

    def register(add_arguments: Callable[[Parser], None]) -> None:
        name = add_arguments.__name__.strip("_").replace("_", " ")
        COMMANDS[name] = Command(name, group, module, needs_project, has_settings, add_arguments)

    return register


@_command(START, "tools.init", needs_project=False, has_settings=False)
def _init(parser: Parser) -> None:
    """Write a new project, with a crawler for feeds.

    Writes a Scrapy project: settings with the identity to fill in, a sources file
    with one feed, and the spiders feeds and llms. No file is replaced.

    examples:
      walsh init my-feeds

    exit status:
      0  the project is written
      1  one of its files exists already, or cannot be written
    """
    _value(parser, "folder", "FOLDER", "the folder of the project")


@_command(START, "tools.add")
def _add(parser: Parser) -> None:
    """Look for a feed at a URL, and add it to the sources file.

    Requests the URL as `walsh discover` does, and declares the source that it finds
    at the end of a .toml or .txt file.

    examples:
      walsh add https://news.example/

    exit status:
      0  every URL has a source, which is in the file now
      1  a URL has no source, or the file cannot be written
    """
    _add_urls(parser, "a page, or a feed")
    _add_sources(parser)
    _add_log_level(parser)


@_command(START, "tools.discover")
def _discover(parser: Parser) -> None:
    """Show the feeds of a site, as lines for the sources file.

    Requests, as politely as a crawl, the page and at most three feeds that its
    headers or its head declare; if none is a feed, also /llms.txt. The sources are
    printed as TOML, and everything else as comments. The file is not changed.

    examples:
      walsh discover https://docs.example/
      walsh discover https://docs.example/ >> sources.toml

    exit status:
      0  every URL has a source
      1  a URL has none, or could not be requested
    """
    _add_urls(parser, "a page, such as https://docs.example/")
    _add_json(parser)
    _add_log_level(parser)


@_command(START, "tools.keys", needs_project=False)
def _keys(_: Parser) -> None:
    """Make a key that signs requests, and the directory to publish.

    A site can verify by a signature that a request comes from your bot.

    examples:
      walsh keys new key.pem
      walsh keys directory key.pem > directory.json

    exit status:
      0  done
      1  the key cannot be read or written
    """


@_command(START, "tools.keys", needs_project=False)
def _keys_new(parser: Parser) -> None:
    """Write a new private key, and print its id.

    The file is new, and only you can read it. The key is for Ed25519.

    examples:
      walsh keys new key.pem

    exit status:
      0  the key is written
      1  the file exists, or cannot be written
    """
    _value(parser, "file", "FILE", "a new file, such as key.pem")


@_command(START, "tools.keys", needs_project=False)
def _keys_directory(parser: Parser) -> None:
    """Print the public keys to publish, as a JSON Web Key Set.

    The keys are those in the files, or that of WALSH_SIGNING_KEY.

    examples:
      walsh keys directory key.pem old.pem > directory.json
      walsh keys directory --headers --days 30

    exit status:
      0  printed
      1  a key cannot be read
    """
    _value(parser, "files", "FILE", "a private key", nargs="*")
    _flag(parser, "--headers", "print the header fields to publish it with, signed by each key")
    valid = "with --headers, how long the signatures are valid (default 30)"
    _value(parser, "--days", "DAYS", valid, _read_days)


@_command(START, "testing.demo", needs_project=False, has_settings=False)
def _demo(_: Parser) -> None:
    """Crawl a web on this machine twice, and check the crawls.

    Serves sixteen hosts on this machine, runs the real `scrapy crawl feeds` against
    them twice, and judges it by the log of the servers. It takes less than a minute
    and needs no network.

    examples:
      walsh demo

    exit status:
      0  no rule was broken
      1  a rule was broken, or a crawl failed
    """


@_command(LOOK, "tools.status")
def _status(parser: Parser) -> None:
    """List the problems, for you and for a monitor.

    Looks at the last crawls, the blocklist, the share of sources that fail, hosts
    on hold for long, the sources file, the free disk and the clock. The most urgent
    problem comes first. No request is sent.

    examples:
      walsh status
      walsh status --quiet
      walsh status --json
      walsh status --prometheus walsh.prom

    exit status:
      0  there is no problem
      1  there is at least one
    """
    _add_sources(parser)
    _add_json(parser)
    _flag(parser, "--quiet", "print nothing if there is no problem (for cron)")
    _value(parser, "--prometheus", "FILE", "also write metrics to FILE, which ends in .prom")


@_command(LOOK, "tools.sources")
def _sources(parser: Parser) -> None:
    """List the sources, with the last visit and the next one of each.

    Sources with problems come first. With a URL instead of an action, `walsh sources URL`
    shows all facts of one source, and what to do about its problem.

    examples:
      walsh sources
      walsh sources --due
      walsh sources --failing 60d
      walsh sources https://news.example/feed.xml

    exit status:
      0  done
      1  the sources file cannot be read, or there is no such source
    """
    _add_sources(parser)
    _add_json(parser)
    due = "only sources that a crawl would visit now, or once their hosts are free"
    _flag(parser, "--due", due)
    failing = (
        "only sources that are gone, failing, refused or denied; with a duration such as 60d, "
        "only those that began to fail at least this time ago"
    )
    _value(parser, "--failing", "DURATION", failing, _read_duration, nargs="?", const=0.0)
    stale = "only sources without a new entry for that long, such as 90d or 12w"
    _value(parser, "--stale", "DURATION", stale, _read_duration)
    _flag(parser, "--all", "also sources that are no longer declared")


@_command(LOOK, "tools.sources")
def _sources_show(parser: Parser) -> None:
    """Show all facts of a source; `walsh sources URL` does the same.

    What to do about its problem, when it is due and why, the outcome of its last
    visit, its validators, and its host. `walsh why URL` shows its requests.

    examples:
      walsh sources https://news.example/feed.xml

    exit status:
      0  printed
      1  there is no such source
    """
    _add_urls(parser, "a source")
    _add_sources(parser, default=argparse.SUPPRESS)
    _add_json(parser, default=argparse.SUPPRESS)


@_command(LOOK, "tools.sources")
def _sources_resume(parser: Parser) -> None:
    """Make a source due again that is gone or failing.

    Its failures are counted from 0, and the next visit reads it as a whole.

    examples:
      walsh sources resume https://news.example/feed.xml

    exit status:
      0  done
      1  there is no such source
    """
    _add_urls(parser, "a source")
    _add_sources(parser, default=argparse.SUPPRESS)


@_command(LOOK, "tools.sources")
def _sources_sync(parser: Parser) -> None:
    """Read a changed sources file into the state.

    The next crawl does this by itself; for a million sources it takes a minute.

    examples:
      walsh sources sync

    exit status:
      0  done
      1  the sources file cannot be read
    """
    _add_sources(parser, default=argparse.SUPPRESS)


@_command(LOOK, "tools.hosts")
def _hosts(parser: Parser) -> None:
    """List the hosts that wait, and why; release or delay one.

    Hosts on hold come first. Hosts that were unreachable or answered an error to
    the last request are listed too, and those with a delay of yours.

    examples:
      walsh hosts
      walsh hosts --json
      walsh hosts release blog.example --because "they wrote"
      walsh hosts delay blog.example 2h

    exit status:
      0  done
      1  the host is not on hold
    """
    _add_json(parser)


@_command(LOOK, "tools.hosts")
def _hosts_release(parser: Parser) -> None:
    """End the hold of a host, for a reason that is recorded.

    The host may be requested again at once.

    examples:
      walsh hosts release blog.example --because "they wrote"

    exit status:
      0  the hold is over
      1  the host is not on hold
    """
    _add_host(parser, is_required=True)


@_command(LOOK, "tools.hosts")
def _hosts_delay(parser: Parser) -> None:
    """Set the shortest time between two requests to a host.

    A longer delay that the host asks for stays. 0 ends a delay of yours.

    examples:
      walsh hosts delay blog.example 2h --because "they asked"
      walsh hosts delay blog.example 0

    exit status:
      0  done
      1  the delay cannot be recorded
    """
    _add_host(parser, is_required=False)
    _value(parser, "seconds", "DURATION", "seconds, or a duration such as 2h", _read_delay)


@_command(LOOK, "tools.new")
def _new(parser: Parser) -> None:
    """List the new entries by source, the newest first.

    Without --since these are the entries since the start of the last run that found
    something.

    examples:
      walsh new
      walsh new --since yesterday
      walsh new --since 7d --json

    exit status:
      0  done, even if no entry is new
      1  an entry cannot be read
    """
    _add_since(parser, "list the entries first seen")
    _add_json(parser)


@_command(LOOK, "tools.runs")
def _runs(parser: Parser) -> None:
    """List the runs, those at work first, and how each ended.

    Runs that had a problem in the last two days come before all others. A run is
    killed if it has no end and gave no sign of life for longer than it may wait.

    examples:
      walsh runs
      walsh runs --since 7d --json

    exit status:
      0  done
    """
    _add_since(parser, "list the runs that began")
    _add_json(parser)


@_command(LOOK, "tools.report")
def _report(parser: Parser) -> None:
    """Write an HTML page about the last crawl and its problems.

    New entries by source and day, sources with problems and advice, hosts that
    wait, delays and gaps, and responses. The page has no scripts and loads nothing.

    examples:
      walsh report -o report.html
      walsh report -O week.html --since 7d

    exit status:
      0  the page is written
      1  the file exists or cannot be written
    """
    _add_output(parser)
    _add_since(parser, "report on all crawls")
    _add_sources(parser)


@_command(DATA, "tools.export")
def _export(parser: Parser) -> None:
    """Export the entries that any run found, or the sources as OPML.

    The ending of FILE chooses the format: .jsonl (or .jl), .json or .csv; .opml has
    the declared sources instead, and .atom is a feed of the newest 500 entries. The
    file is written as a whole or not at all.

    examples:
      walsh export -o entries.jsonl
      walsh export -O week.csv --since 7d
      walsh export -o - | jq -r .url

    exit status:
      0  the file is written
      1  the file exists or cannot be written, or there is no such source
    """
    _add_output(parser)
    _add_since(parser, "only entries first seen")
    _add_sources(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "json", "csv", "opml", "atom"),
        help="instead of the ending of FILE; standard output gets jsonl by default",
    )
    source = "only entries of this source (may be repeated)"
    _value(parser, "--source", "URL", source, action="append", default=[])
    _flag(parser, "--no-backfill", "without the entries of the first reading of a source")


@_command(DATA, "tools.backup")
def _backup(parser: Parser) -> None:
    """Copy the state into one file, while crawls run.

    Copies an SQLite state as it is at one moment; no crawl waits. A state on
    PostgreSQL is copied by pg_dump. The signing key, the sources file and your
    settings are other files: keep them too.

    examples:
      walsh backup -o walsh-backup.sqlite3

    exit status:
      0  the copy is written
      1  the file exists or cannot be written, or the state is on PostgreSQL
    """
    _add_output(parser, takes_stdout=False)


@_command(SITES, "tools.why")
def _why(parser: Parser) -> None:
    """Show the requests to a host on one day, as a letter to its owner.

    Each request with its answer, the gap before it and the required gap, and the
    line of robots.txt that allowed it; the requests that were denied; each
    robots.txt that decided; the next visits; who we are, and how to keep us out.
    Without --on it is the last day in the state.

    examples:
      walsh why blog.example
      walsh why blog.example --on 2026-11-17
      walsh why https://blog.example/feed.xml --json

    exit status:
      0  printed
      1  nothing is known of the host
    """
    _value(parser, "subject", "URL|HOST", "such as blog.example")
    _value(parser, "--on", "DATE", "a day in UTC, such as 2026-11-17", _read_date)
    _add_json(parser)


@_command(SITES, "tools.mayfetch", needs_project=False)
def _mayfetch(parser: Parser) -> None:
    """Show whether URLs may be fetched, and why.

    In a project, prints the answer of each gate. The URL itself is not requested;
    robots.txt and the blocklist are, if the state has no current copy. With
    --robots the answer is that of the file, for any bot, and no request is sent.

    examples:
      walsh mayfetch https://blog.example/feed.xml --json
      walsh mayfetch --robots robots.txt --user-agent GPTBot https://a.example/

    exit status:
      0  all URLs are allowed
      1  a URL is denied, or a gate cannot say; the line says which
    """
    _add_urls(parser, "a URL with its scheme")
    _value(parser, "--robots", "FILE", "a robots.txt, or - for standard input")
    bot = "with --robots, a bot by its name there or its User-Agent (may be repeated)"
    _value(parser, "--user-agent", "NAME", bot, action="append")
    _flag(parser, "--offline", "answer from the state alone, and send no request")
    _add_json(parser)
    _add_log_level(parser)


@_command(SITES, "tools.attest")
def _attest(parser: Parser) -> None:
    """Audit all requests and entries in the state by a checklist.

    Says of each row of the checklist whether it holds, with the evidence.

    examples:
      walsh attest
      walsh attest --since 2026-11-01 --json > attestation.jsonl

    exit status:
      0  no MUST is broken
      1  a MUST is broken, or the state has nothing to audit
    """
    _add_since(parser, "audit the requests and entries")
    _add_json(parser)


@_command(CRAWLERS, "tools.lint", needs_project=False, has_settings=False)
def _lint(parser: Parser) -> None:
    """Show lines of a robots.txt that do not mean what they seem.

    Prints one line for each finding, an error or a note.

    examples:
      walsh lint robots.txt
      curl -s https://blog.example/robots.txt | walsh lint -

    exit status:
      0  there is no error; notes do not count
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
      0  no MUST failed
      1  a MUST failed or is not shown, or nothing passed
    """
    _add_json(parser, "one JSON object")
    rules = "check these only, separated by commas (R1 to R9, or names of scenarios)"
    _value(parser, "--rules", "RULES", rules)
    _value(parser, "--user-agent", "TEXT", "the exact User-Agent that must be sent")
    patience = "give each run N times as long, for a crawler that needs more time"
    _value(parser, "--patience", "N", patience, _read_patience, default=1.0)
    proxy = "give the hosts names behind a proxy, not addresses (the default except on Linux)"
    _flag(parser, "--proxy", proxy, default=None)
    crawler = "after --, the command that crawls"
    _value(parser, "crawler", "COMMAND", crawler, nargs=argparse.REMAINDER)


# ---- arguments of several commands ----


def add_settings(parser: Parser, *, is_action: bool) -> None:
    """Add ``-s``, which may stand before and behind the name of an action."""
    parser.add_argument(
        *("-s", "--set"),
        metavar="NAME=VALUE",
        action="append",
        type=_typed(_read_setting),
        dest="action_settings" if is_action else "settings",
        default=argparse.SUPPRESS,
        help="set a setting of the project (may be repeated)",
    )


def _flag(parser: Parser, name: str, text: str, **options: Any) -> None:  # noqa: ANN401
    parser.add_argument(name, action="store_true", help=text, **options)


def _value(
    parser: Parser,
    name: str,
    metavar: str,
    text: str,
    read: Callable[[str], Any] = str,
    **options: Any,  # noqa: ANN401 - those of argparse
) -> None:
    parser.add_argument(name, metavar=metavar, type=_typed(read), help=text, **options)


def _add_urls(parser: Parser, text: str) -> None:
    _value(parser, "urls", "URL", text, nargs="+")


def _add_host(parser: Parser, *, is_required: bool) -> None:
    _value(parser, "host", "HOST", "such as blog.example")
    reason = "the reason in one line, which is recorded"
    _value(parser, "--because", "TEXT", reason, _read_reason, required=is_required)


def _add_json(parser: Parser, text: str = "one JSON object per line", **options: Any) -> None:  # noqa: ANN401
    _flag(parser, "--json", f"print {text}", **options)


def _add_sources(parser: Parser, **options: Any) -> None:  # noqa: ANN401
    _value(parser, "--sources", "FILE", "the sources file, instead of WALSH_SOURCES", **options)


def _add_since(parser: Parser, what: str) -> None:
    text = f"{what} since today, yesterday, 1d (a day ago), a date or an RFC 3339 time"
    _value(parser, "--since", "WHEN", text, _read_moment)


def _add_output(parser: Parser, *, takes_stdout: bool = True) -> None:
    """Add ``-o`` and ``-O``; a file that cannot be a stream is not written to standard output."""
    new = "a new file, or - for standard output" if takes_stdout else "a new file"
    parser.add_argument("-o", "--output", metavar="FILE", help=new)
    again = "the same, but an existing file is replaced"
    parser.add_argument("-O", "--overwrite-output", metavar="FILE", help=again)


def _add_log_level(parser: Parser) -> None:
    text = "log level of the requests (default WARNING)"
    parser.add_argument("-L", "--loglevel", metavar="LEVEL", help=text)


# ---- values ----


def _typed(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a ``type`` for ``add_argument`` that shows the sentences of ValueErrors."""

    def checked(text: str) -> Any:  # noqa: ANN401 - as ``read`` returns
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _read_setting(text: str) -> tuple[str, str]:
    name, is_setting, value = text.partition("=")
    if not is_setting:
        raise ValueError(f"{text!r} is not a setting; write -s NAME=VALUE")
    return name, value


def _read_moment(text: str) -> float:
    from walsh_scrapy.policy.durations import parse_since

    return parse_since(text, time.time())


def _read_duration(text: str) -> float:
    from walsh_scrapy.policy.durations import parse_typed_duration

    try:
        return parse_typed_duration(text.strip()).total_seconds()
    except ValueError:
        problem = f"{text[:40]!r} is not a duration; write for example 90d, 12w or P90D"
        raise ValueError(problem) from None


def _read_delay(text: str) -> float:
    for read in (float, _read_duration):
        with suppress(ValueError):
            if 0.0 <= (seconds := read(text.strip())) < math.inf:
                return seconds
    raise ValueError(f"{text!r} is neither seconds nor a duration; write for example 90 or 2h")


def _read_date(text: str) -> str:
    """Return a date as the state writes it: `2026-11-17`."""
    from datetime import UTC, datetime

    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date().isoformat()
    except ValueError:
        raise ValueError(f"{text!r} is not a day in UTC, such as 2026-11-17") from None


def _read_reason(text: str) -> str:
    if not text.strip() or any(ord(character) < 32 for character in text):
        raise ValueError('it takes one line of text, such as "mail of 3 May: go on"')
    return text.strip()


def _read_days(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= _MAX_DAYS):
        raise ValueError(f"{text} is not a number of days from 1 to {_MAX_DAYS}")
    return int(text)


def _read_patience(text: str) -> float:
    with suppress(ValueError):
        if 1 <= (number := float(text)) < math.inf:
            return number
    raise ValueError(f"{text} is not a number of at least 1")
