"""`python -m benchmarks.conformance [NAME...]`: tries crawlers, and prints a row for each.

It needs the programs of the drivers: wget, wget2, httrack, curl, newsboat and r2e; feedparser and
requests for this Python. In the current folder it needs a `node_modules` for the two of Node.js
(`npm install rss-parser crawlee`), and a virtual environment with crawlee for Python
(`python -m venv crawlee-python && crawlee-python/bin/pip install "crawlee[httpx]"`). A cell has the
scenarios that passed of those that passed or failed. `NAME-proxy` is tried behind the proxy. Each
may take twice as long as `walsh conformance` gives it. `--save FOLDER` as the first words keeps the
scorecards as JSON.
"""

import json
import sys
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
#: As a project has it that installs the add-on: an identity of its own.
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
        cells.append(f"{good} of {good + bad}" if good + bad else "-")
    return f"| {name} | {' | '.join(cells)} |"


def main(words: list[str]) -> None:
    folder = None
    if words[:1] == ["--save"]:
        folder, words = Path(words[1]), words[2:]
    print(f"| crawler | {' | '.join(RULES)} |")
    print(f"|---{'|---' * len(RULES)}|")
    for name in words or (*CRAWLERS, "crawlee-proxy"):
        command, proxy = CRAWLERS[name.removesuffix("-proxy")], name.endswith("-proxy")
        card = run(command, proxy=proxy, patience=2.0)
        print(row(name, card), flush=True)
        if folder:
            (folder / f"{name}.json").write_text(json.dumps(card.as_dict(), indent=1), "utf-8")


main(sys.argv[1:])
