"""robots.txt: against Protego on a file of 50 KB, and the worst files of 500 KiB that we know.

    python -m benchmarks.robots

Goals: ratio <= 1.0; for each worst file <= 50 ms to parse and select our group, <= 5 ms a verdict
on a URL of 2 KB, <= 20 MiB. Times are CPU time, the best of several rounds.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from string import ascii_letters
from time import process_time

from protego import Protego

from benchmarks.report import Figure, Report, run
from walsh_scrapy.policy.robots import RobotsTxt, Rules

TOKEN = "Walsh-Research"
LIMIT = 500 * 1024
ROUNDS = 7


def ordinary_file(size: int = 50_000) -> str:
    """Return a file as large sites have them: a few named groups, then many rules for all."""
    words = ("account", "basket", "search", "print", "archive", "tag", "user", "api", "media")
    lines = ["# robots.txt", ""]
    for bot in ("Badbot", "Otherbot", "Grabber/2.0"):
        lines += [f"User-agent: {bot}", "Disallow: /", ""]
    lines += ["User-agent: *", "Crawl-delay: 5", ""]
    for number in count():
        word = words[number % len(words)]
        lines.append(f"Disallow: /{word}/{number}/")
        if number % 7 == 0:
            lines.append(f"Allow: /{word}/{number}/public")
        if number % 11 == 0:
            lines.append(f"Disallow: /*/{word}?id={number}")
        if number % 23 == 0:
            lines.append(f"Disallow: /{word}/*.{number}$")
        if sum(map(len, lines)) + len(lines) > size:
            return "\n".join([*lines, "Sitemap: https://example.com/sitemap.xml", ""])
    raise AssertionError


def urls(number: int = 1_000) -> list[str]:
    """Return as many different URLs, some of them named by a rule."""
    words = ("account", "blog", "search", "2024", "news", "feed", "user")
    return [
        f"https://example.com/{words[i % len(words)]}/{i}/item-{i}.html" + ("?id=7" * (i % 5 == 0))
        for i in range(number)
    ]


def select(body: bytes) -> Rules:
    return RobotsTxt.parse(body).rules_for(TOKEN)


def ours(body: bytes, targets: list[str]) -> int:
    rules = select(body)
    return sum(rules.verdict(url).allowed for url in targets)


def theirs(body: bytes, targets: list[str]) -> int:
    parser = Protego.parse(body.decode())
    return sum(parser.can_fetch(url, TOKEN) for url in targets)


def seconds(function: Callable[[], object]) -> float:
    gc.collect()
    start = process_time()
    function()
    return process_time() - start


def main(report: Report) -> None:
    """Report both."""
    compare_with_protego(report)
    show_worst_files(report)


def compare_with_protego(report: Report) -> None:
    """Report parse + 1,000 verdicts of both, taken in turns."""
    body, targets = ordinary_file().encode(), urls()
    if ours(body, targets) != theirs(body, targets):
        raise AssertionError("the two readers do not agree on an ordinary file")
    rounds = [
        (seconds(partial(ours, body, targets)), seconds(partial(theirs, body, targets)))
        for _ in range(ROUNDS)
    ]
    mine, peer = (min(times) * 1e3 for times in zip(*rounds, strict=True))
    cost = Figure("CPU", mine, "ms", peer="Protego", peer_value=peer, max_value=1.0)
    report.add("50 KB file, parse + 1,000 verdicts", cost)


def filled(line: Callable[[int], str], head: str = "User-agent: *") -> bytes:
    """Return 500 KiB of lines, each made from its number."""

    def lines() -> Iterator[str]:
        size = len(head)
        yield head
        for number in count():
            text = line(number)
            size += len(text) + 1
            if size > LIMIT:
                return
            yield text

    return "\n".join(lines()).encode("latin-1")


def name(number: int) -> str:
    """Return a short name of letters only, different for each number."""
    letters = ascii_letters[number % 52]
    while number := number // 52:
        letters += ascii_letters[number % 52]
    return letters


#: A hard space in UTF-8, one character for each octet.
HARD = "\xc2\xa0"


def worst_files() -> dict[str, bytes]:
    """Return files made to be slow to read, each for another reason."""
    version_2 = "User-agent: *\nRobot-version: 2.0"
    return {
        "different rules": filled(lambda i: f"Allow:/{i:x}"),
        "shortest rules": filled(lambda i: f"Allow {name(i)}"),
        "rules with specials": filled(lambda i: f"Allow:/{chr(33 + i % 90)}{i:x}"),
        "escaped rules": filled(lambda i: f"Disallow:/%41{i:x}"),
        "escaped queries": filled(lambda i: f"Allow:/?%2F{i:x}"),
        "rules cut in an escape": filled(lambda i: f"Allow:/{i:x}%"),
        "anchored rules": filled(lambda i: f"Allow:/{i:x}$"),
        "wildcard rules": filled(lambda i: f"Allow:*{i:x}"),
        "three stars each": filled(
            lambda i: f"Allow:*{name(i % 52)}*{name(i // 52 % 52)}*{name(i // 2704 % 52)}!"
        ),
        "a thousand stars each": filled(lambda i: f"Allow:{'*a' * 1_000}b{i}"),
        "wildcards, escaped": filled(lambda i: f"Allow:/*%2F{i:x}"),
        "wildcards, almost found": filled(lambda i: f"Allow:/*/a%2F*a/{i}"),
        "all stars": filled(lambda i: "Disallow:" + "*" * (40 + i % 40)),
        "one line of stars": b"User-agent: *\nDisallow: /" + b"*a" * 250_000,
        "one endless line": b"User-agent: *\nDisallow: /" + b"a" * 510_000,
        "%41 runs": filled(lambda i: f"Disallow:/{'%41' * 1_000}{i}"),
        "one line of %41": b"User-agent: *\nDisallow: /" + b"%41" * 170_000,
        "one line of %": b"User-agent: *\nAllow: /" + b"%" * 510_000,
        "one line of $": b"User-agent: *\nAllow: /" + b"$" * 510_000,
        "one line of no ASCII": b"User-agent: *\nAllow: /" + bytes(range(128, 256)) * 3_900,
        "only User-agent lines": filled(lambda i: f"useragent:{name(i)}"),
        "stacked agents x rules": filled(
            lambda i: f"User-agent: {name(i)}" if i < 15_000 else f"Disallow: /{i:x}"
        ),
        "groups naming us": filled(lambda i: f"useragent:walsh\nallow:{name(i)}"),
        "groups for all": filled(lambda i: f"useragent:*\nallow:{name(i)}"),
        "groups of comments": filled(lambda i: f"useragent:*\ncomment:{name(i)}"),
        "groups of version 2": filled(lambda i: f"useragent:*\nrobot-version:2\nallow:{name(i)}"),
        "different delays": filled(lambda i: f"crawl-delay:{i}"),
        "different rates": filled(lambda i: f"request-rate:1/{i + 1} 0000-{i % 24:02}00"),
        "different windows": filled(lambda i: f"visit-time:{i % 24:02}{i // 24 % 60:02}-0000"),
        "comments": filled(lambda i: f"comment:{name(i)}"),
        "sitemaps": filled(lambda i: f"sitemap:{name(i)}"),
        "version 2, in order": filled(lambda i: f"Allow:{name(i)}", version_2),
        "version 2, wildcards": filled(lambda i: f"Allow:*{name(i)}", version_2),
        "version 2, brackets": filled(lambda i: f"Allow:*[{name(i)}]?", version_2),
        "version 2, one pattern": f"{version_2}\nAllow: /{'*a?' * 4_900}".encode(),
        "shortest rules, one hard space": filled(lambda i: f"Allow {name(i)}{HARD * (i == 9)}"),
        "wildcard rules, one hard space": filled(lambda i: f"Allow:*{i:x}{HARD * (i == 9)}"),
        "rates, one hard space": filled(lambda i: f"request-rate:1/{i + 1}{HARD * (i == 9)}"),
        "groups, one hard space": filled(
            lambda i: f"useragent:*\nallow:{name(i)}{HARD * (i == 9)}"
        ),
        "2,000 hard spaces": filled(lambda i: f"Allow {name(i)}{HARD * (i < 2_000)}"),
        "hard spaces in comments": filled(lambda _: f"#{HARD}"),
        "one line of hard spaces": b"User-agent: *\nDisallow: /" + b"\xc2\xa0a" * 160_000,
        "agents with hard spaces": filled(
            lambda i: f"{HARD * (i % 9 == 0)}useragent:*\nallow:{name(i)}" if i < 2_000 else name(i)
        ),
        "empty lines": b"\n" * LIMIT,
        "unknown lines": b"a:b\n" * (LIMIT // 4),
        "blanks": b"User-agent: *\nDisallow" + b" " * 500_000,
    }


#: URLs of 2 KB, each slow for another kind of rules.
LONG_URLS = (
    "/" + "a" * 2_000,
    "/" + ascii_letters * 38,
    "/" + "%41" * 666,
    "/?" + "/a" * 1_000,
    "/" + ":" * 2_000,
    "/" + "\u00e9" * 1_000,
)


def peak_mib(body: bytes) -> float:
    tracemalloc.start()
    rules = select(body)
    rules.verdict(LONG_URLS[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def show_worst_files(report: Report) -> None:
    """Report the cost of each of the worst files."""
    for title, body in worst_files().items():
        parse = min(seconds(partial(select, body)) for _ in range(ROUNDS))
        rules = select(body)
        verdict = max(
            min(seconds(partial(rules.verdict, url)) for _ in range(3)) for url in LONG_URLS
        )
        report.add(
            f"500 KiB of {title}",
            Figure("parse", parse * 1e3, "ms", max_value=50),
            Figure("verdict", verdict * 1e3, "ms", max_value=5),
            Figure("memory", peak_mib(body), "MiB", max_value=20),
        )


if __name__ == "__main__":
    run(main)
