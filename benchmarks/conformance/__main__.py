"""`python -m benchmarks.conformance [NAME...]`: tries crawlers, and prints a row for each.

It needs what the drivers use: wget, wget2, httrack, curl, newsboat and r2e; feedparser and requests
for this Python. In the current folder the two drivers of Node.js need a `node_modules`
(`npm install rss-parser crawlee`), and that of crawlee for Python a virtual environment
(`python -m venv crawlee-python && crawlee-python/bin/pip install crawlee`). A cell has the number
of scenarios that passed, of those that passed or failed. `NAME-proxy` is tried behind a proxy. Each
crawler gets four times the time that `walsh conformance` gives it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from walsh_scrapy.testing.conformance import RULES, Scorecard, Verdict, run

_HERE = Path(__file__).parent
_WGET = (
    "wget --wait=1 --tries=3 --timeout=20 --timestamping --ca-certificate={ca} "
    "--force-directories --directory-prefix={folder} --input-file={seeds}"
)
#: https://www.gnu.org/software/wget/manual/wget.html recommends --wait; so does the one of wget2.
_WGET2 = (
    "wget2 --wait=1 --max-threads=1 --tries=3 --timeout=20 --timestamping --ca-certificate={ca} "
    "--force-directories --directory-prefix={folder} --input-file={seeds}"
)
#: https://www.httrack.com/html/abuse.html recommends limits of connections, and robots.txt rules.
_HTTRACK = (
    "httrack --list {seeds} --path {folder} --depth=1 --robots=2 --sockets=1 "
    "--connection-per-second=1 --keep-alive=0 --retries=2 --timeout=20 --cache=2 --quiet "
    "--user-agent Example-Bot/1.0+(+https://bot.example/)"
)
#: The identity of a project that installs the add-on.
_IDENTITY = (
    "-sWALSH_UA_TOKEN=Example-Bot",
    "-sWALSH_USER_AGENT=Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)",
)
CRAWLERS = {
    "ours": [sys.executable, "-m", "walsh_scrapy.testing.owncrawl", *_IDENTITY],
    "honest": [sys.executable, f"{_HERE.parents[1]}/tests/helpers/honest.py"],
    "scrapy": [sys.executable, f"{_HERE}/scrapy_spider.py"],
    "scrapy-polite": [sys.executable, f"{_HERE}/scrapy_spider.py", "polite"],
    "wget": _WGET.split(),
    "wget2": _WGET2.split(),
    "httrack": _HTTRACK.split(),
    "newsboat": [f"{_HERE}/newsboat.sh"],
    "rss2email": [f"{_HERE}/rss2email.sh"],
    "curl": [f"{_HERE}/curl.sh"],
    "feedparser": [sys.executable, f"{_HERE}/feedparser_requests.py"],
    "rss-parser": ["node", f"{_HERE}/rss_parser.cjs"],
    "crawlee": ["node", f"{_HERE}/crawlee.cjs"],
    "crawlee-python": ["crawlee-python/bin/python", f"{_HERE}/crawlee_python.py"],
    "crawlee-throttled": ["crawlee-python/bin/python", f"{_HERE}/crawlee_python.py", "throttled"],
}


def row(name: str, card: Scorecard) -> str:
    counts = card.by_rule()
    cells = []
    for rule in RULES:
        good, bad = counts[rule][Verdict.PASS], counts[rule][Verdict.FAIL]
        cells.append(f"{good}/{good + bad}" if good + bad else "-")
    return f"| {name} | {' | '.join(cells)} |"


def main(words: Sequence[str]) -> None:
    """Try the crawlers that the words name."""
    options = options_of(words)
    print(f"| crawler | {' | '.join(RULES)} |")
    print(f"|---{'|---' * len(RULES)}|")
    for name in options.names or (*CRAWLERS, "crawlee-proxy"):
        command = CRAWLERS[name.removesuffix("-proxy")]
        card = run(command, proxy=name.endswith("-proxy"), patience=4.0)
        print(row(name, card), flush=True)
        if options.save:
            file = options.save / f"{name}.json"
            file.write_text(json.dumps(card.as_dict(), indent=1), "utf-8")


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """Read the words of the call; a wrong one ends the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    usage = f"one or more of {', '.join(CRAWLERS)}, or one of them with -proxy at its end"
    parser.add_argument("names", nargs="*", metavar="NAME", help=usage)
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the scorecards as JSON")
    options = parser.parse_args(words)
    if unknown := [name for name in options.names if name.removesuffix("-proxy") not in CRAWLERS]:
        parser.error(f"no crawler is called {', '.join(unknown)}")
    return options


if __name__ == "__main__":
    main(sys.argv[1:])
