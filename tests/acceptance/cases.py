"""Random days that once failed. They are played in each gate, with what was wrong as their names.

`tests.acceptance.seeds` writes them.
"""

from typing import Final

from tests.acceptance.randomdays import (
    Answer,
    Crawl,
    Days,
    Host,
    Kill,
    OptOuts,
    Phase,
    Robots,
    Worker,
)

CASES: Final[dict[str, Days]] = {
    "no list, because a dead worker has its host, and the clock was set back": Days(
        hosts=(
            Host(
                name="b.example",
                robots=(Phase(since=0.0, page=Robots()),),
                pages=(("/feed", (Phase(since=0.0, page=Answer()),)),),
            ),
        ),
        blocklist=(Phase(since=0.0, page=OptOuts(domains=("b.example",))),),
        steps=(
            Crawl(
                at=0.0,
                sources=("http://b.example/feed",),
                workers=(Worker(kill=Kill(request=1, is_answered=True, turns=1, seconds=0.5)),),
            ),
            Crawl(at=20.0, sources=("http://b.example/feed",), ahead=-3600.0),
        ),
    ),
    "a list forgotten, because only a killed request shows that the clock was set back": Days(
        hosts=(
            Host(
                name="a.example",
                robots=(Phase(since=0.0, page=Robots()),),
                pages=(("/feed", (Phase(since=0.0, page=Answer()),)),),
            ),
        ),
        blocklist=(Phase(since=0.0, page=OptOuts(domains=("b.example",))),),
        steps=(
            Crawl(at=0.0, sources=("http://a.example/feed",)),
            Crawl(
                at=300.0,
                sources=("http://a.example/feed",),
                workers=(Worker(kill=Kill(request=1, is_answered=True, turns=0, seconds=0.0)),),
                ahead=-18000.0,
                force=True,
            ),
            Crawl(at=25500.0, sources=("http://a.example/feed",), ahead=-18000.0, force=True),
        ),
    ),
    "the Crawl-delay of a redirected robots.txt, lost by a kill": Days(
        hosts=(
            Host(
                name="a.example",
                robots=(
                    Phase(since=0.0, page=Answer(status=302, to="http://sub.b.example/rules.txt")),
                ),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(has_etag=True)),),
                    ),
                    (
                        "/more",
                        (Phase(since=0.0, page=Answer()),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots()),),
                    ),
                ),
            ),
            Host(
                name="b.example",
                robots=(Phase(since=0.0, page=Answer(status=403)),),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(has_etag=True)),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/more",), is_named=True)),),
                    ),
                ),
            ),
            Host(
                name="sub.b.example",
                robots=(Phase(since=0.0, page=Robots(rate=7, has_etag=True)),),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(status=403)),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/more",), crawl_delay=5)),),
                    ),
                ),
            ),
            Host(
                name="c.example",
                robots=(
                    Phase(since=0.0, page=Answer(status=302, to="http://a.example/rules.txt")),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(
                                since=0.0, page=Answer(status=429, retry_after=1200, as_date=True)
                            ),
                        ),
                    ),
                    (
                        "/more",
                        (Phase(since=0.0, page=Answer()),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/private/",), is_named=True)),),
                    ),
                ),
            ),
        ),
        blocklist=(Phase(since=0.0, page=OptOuts()),),
        steps=(
            Crawl(
                at=0.0,
                sources=(
                    "http://a.example/feed",
                    "http://a.example/more",
                    "http://b.example/feed",
                    "http://sub.b.example/feed",
                    "http://c.example/feed",
                    "http://c.example/more",
                ),
                workers=(Worker(kill=Kill(request=8, is_answered=False, turns=0, seconds=0.05)),),
            ),
            Crawl(
                at=7200.0,
                sources=(
                    "http://a.example/more",
                    "http://c.example/feed",
                    "http://c.example/more",
                ),
            ),
        ),
    ),
    "a page that goes first by an old copy, after the long delay of the file before": Days(
        hosts=(
            Host(
                name="b.example",
                robots=(
                    Phase(since=0.0, page=Robots(disallow=("/more",), crawl_delay=1000)),
                    Phase(since=176399.0, page=Answer(status=404)),
                ),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(has_etag=True)),),
                    ),
                    (
                        "/more",
                        (Phase(since=0.0, page=Answer()),),
                    ),
                    (
                        "/rules.txt",
                        (
                            Phase(
                                since=0.0,
                                page=Robots(disallow=("/private/",), crawl_delay=2, is_named=True),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        blocklist=(Phase(since=0.0, page=OptOuts()),),
        steps=(
            Crawl(at=0.0, sources=("http://b.example/more",)),
            Crawl(at=178920.0, sources=("http://b.example/more",)),
            Crawl(at=355320.0, sources=("http://b.example/more",)),
        ),
    ),
    "a redirected robots.txt whose target comes late": Days(
        hosts=(
            Host(
                name="a.example",
                robots=(
                    Phase(
                        since=0.0,
                        page=Robots(
                            crawl_delay=1000,
                            opens=(
                                8,
                                9,
                            ),
                            is_named=True,
                            has_etag=True,
                        ),
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(status=410)),),
                    ),
                    (
                        "/more",
                        (Phase(since=0.0, page=Answer()),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/more",))),),
                    ),
                ),
            ),
            Host(
                name="b.example",
                robots=(
                    Phase(since=0.0, page=Answer(status=302, to="http://a.example/rules.txt")),
                ),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(has_etag=True)),),
                    ),
                    (
                        "/more",
                        (Phase(since=0.0, page=Answer(has_etag=True)),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/private/",), crawl_delay=2)),),
                    ),
                ),
            ),
        ),
        blocklist=(Phase(since=0.0, page=OptOuts()),),
        steps=(
            Crawl(
                at=0.0,
                sources=(
                    "http://a.example/more",
                    "http://b.example/more",
                ),
                workers=(Worker(late=20.0),),
            ),
            Crawl(at=300.0, sources=("http://b.example/more",)),
        ),
    ),
    "a date in Retry-After, seen by a clock that is behind": Days(
        hosts=(
            Host(
                name="b.example",
                robots=(
                    Phase(
                        since=0.0, page=Robots(disallow=("/more",), crawl_delay=5, is_named=True)
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer()),),
                    ),
                    (
                        "/more",
                        (Phase(since=0.0, page=Answer(status=502)),),
                    ),
                    (
                        "/private/feed",
                        (Phase(since=0.0, page=Answer(status=429, retry_after=1, as_date=True)),),
                    ),
                    (
                        "/rules.txt",
                        (
                            Phase(
                                since=0.0,
                                page=Robots(disallow=("/more",), crawl_delay=2, is_named=True),
                            ),
                        ),
                    ),
                ),
            ),
            Host(
                name="c.example",
                robots=(Phase(since=0.0, page=Robots(disallow=("/private/",), crawl_delay=40)),),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(status=302, to="https://c.example/feed")),),
                    ),
                    (
                        "/more",
                        (
                            Phase(
                                since=0.0,
                                page=Answer(status=302, to="http://b.example/private/feed"),
                            ),
                        ),
                    ),
                    (
                        "/private/feed",
                        (Phase(since=0.0, page=Answer()),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(crawl_delay=5)),),
                    ),
                ),
            ),
        ),
        blocklist=(Phase(since=0.0, page=OptOuts()),),
        steps=(
            Crawl(
                at=97200.0,
                sources=(
                    "http://b.example/private/feed",
                    "http://c.example/more",
                    "http://c.example/private/feed",
                ),
                workers=(
                    Worker(),
                    Worker(late=0.5),
                ),
                ahead=-2.0,
            ),
        ),
    ),
}
