"""A conformance run of this installation: its crawls as a command, and its scorecard as evidence.

The command is `python -m walsh_scrapy.tools.attest.owncrawl`. The environment says what to crawl:
`CONFORMANCE_SEEDS` and `CONFORMANCE_PAGES` are files with URLs of feeds and of feed-less sites,
`CONFORMANCE_FOLDER` is where a state may be kept, and `CONFORMANCE_KEY` the key to sign with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.audit.checklist import CHECKLIST
from walsh_scrapy.policy.audit.findings import Trial
from walsh_scrapy.tools import own_code
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.files import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where the key would be published; nothing is asked for there.
_AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"

#: The command of such a run.
OWN_CRAWL: Final = [sys.executable, "-m", "walsh_scrapy.tools.attest.owncrawl"]
#: The version of the JSON of a conformance run.
_SCORECARD: Final = "walsh-research-conformance/v1"
#: Scenarios about a row of their own. All others count for the first row of their rule.
_ROW_OF: Final = {
    "named-group-denies": "2a",
    "named-group-exempts": "2a",
    "opted-out-subdomain": "3a",
    "list-retained": "3b",
}
_FIRST: Final = {row.rule: row.number for row in reversed(CHECKLIST)}


def main(environment: Mapping[str, str]) -> None:
    """Crawl the feeds, and then the feed-less sites, in processes of their own."""
    folder = Path(environment["CONFORMANCE_FOLDER"])
    _crawl("feeds", environment["CONFORMANCE_SEEDS"], environment)
    if pages := Path(environment["CONFORMANCE_PAGES"]).read_text("utf-8").split():
        declared = folder / "pages.toml"
        entries = (f'[[source]]\nurl = "{url}"\nkind = "llms"\n' for url in pages)
        declared.write_text("".join(entries), "utf-8")
        _crawl("llms", str(declared), environment)


def _crawl(spider: str, sources: str, environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"sources={sources}"]
    if environment.get("CONFORMANCE_FORCE"):
        command += ["-a", "force=1"]
    settings = {
        "WALSH_STATE_URL": f"sqlite:///{environment['CONFORMANCE_FOLDER']}/state.sqlite3",
        "WALSH_BLOCKLIST_URL": environment["CONFORMANCE_BLOCKLIST"],
        "WALSH_BLOCKLIST_SCHEMA_URL": "",
        "WALSH_SIGNING_KEY": environment["CONFORMANCE_KEY"],
        "WALSH_SIGNATURE_AGENT": _AGENT,
    }
    for name, value in settings.items():
        command += ["-s", f"{name}={value}"]
    subprocess.run(command, check=False)  # noqa: S603 - our own command, by our own interpreter


def read_scorecard(name: str, user_agent: str) -> dict[str, Any]:
    """Read a scorecard of this installation, whose bot has this User-Agent.

    Raises CommandError for a file that is none, and for a scorecard of another crawler, of another
    identity, or of other code.
    """
    scorecard = read_json(name)
    wanted = {"code", "command", "user_agents", "results"}
    is_one = isinstance(scorecard, dict) and scorecard.get("format") == _SCORECARD
    if not is_one or wanted - scorecard.keys():
        raise CommandError(f"{name} is no scorecard of `scrapy conformance --json` ({_SCORECARD})")
    why = ""
    if scorecard["command"][-2:] != OWN_CRAWL[-2:]:
        why = f"its command is not `python {' '.join(OWN_CRAWL[1:])}`"
    elif scorecard["user_agents"] != [user_agent]:
        why = f"its crawler was not {user_agent!r}"
    elif scorecard["code"] != own_code():
        why = "it is of another version of this package"
    if why:
        raise CommandError(f"{name} is not about this installation: {why}; make one with --try")
    return dict(scorecard)


def trials_of(scorecard: Mapping[str, Any]) -> dict[str, Trial]:
    """Return what a scorecard says of each row. Raises CommandError if it lacks its results."""
    by_row: dict[str, list[Mapping[str, str]]] = {}
    try:
        for result in scorecard["results"]:
            row = _ROW_OF.get(result["scenario"], _FIRST[result["rule"]])
            given = {name: result[name] for name in ("scenario", "level", "verdict")}
            by_row.setdefault(row, []).append(given)
    except (KeyError, TypeError) as error:
        raise CommandError(f"the scorecard lacks {error}") from error
    return {row: _tried(results) for row, results in by_row.items()}


def _tried(results: list[Mapping[str, str]]) -> Trial:
    def failed(level: str) -> tuple[str, ...]:
        found = (each for each in results if each["verdict"] == "fail" and each["level"] == level)
        return tuple(each["scenario"] for each in found)

    passed = sum(each["verdict"] == "pass" for each in results)
    return Trial(passed, failed("MUST"), failed("SHOULD"))


if __name__ == "__main__":
    main(os.environ)
