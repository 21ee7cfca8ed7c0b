"""Random days that once failed. They are played in each gate, with what was wrong as their names.

`tests.acceptance.seeds` writes them.
"""

from typing import Final

from tests.acceptance.randomdays import (
    Act,
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
                robots=(
                    Phase(since=0.0, page=Answer(status=403)),
                    Phase(
                        since=7199.0, page=Robots(disallow=("/",), crawl_delay=40, has_etag=True)
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer(status=307, to="http://b.example/more")),
                            Phase(since=7230.0, page=Answer(status=403, retry_after=30)),
                            Phase(since=81728.0, page=Answer(has_etag=True)),
                        ),
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
                    Phase(since=79208.0, page=Robots(crawl_delay=2, has_etag=True)),
                    Phase(
                        since=81723.0,
                        page=Robots(disallow=("/private/",), crawl_delay=1000, has_etag=True),
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(
                                since=0.0, page=Answer(status=429, retry_after=1200, as_date=True)
                            ),
                            Phase(since=79199.0, page=Answer(delay=500.0)),
                        ),
                    ),
                    (
                        "/more",
                        (
                            Phase(since=0.0, page=Answer()),
                            Phase(since=79199.0, page=Answer()),
                        ),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/private/",), is_named=True)),),
                    ),
                ),
            ),
        ),
        blocklist=(
            Phase(since=0.0, page=OptOuts()),
            Phase(since=82019.0, page=Answer(status=404)),
        ),
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
                    "http://a.example/feed",
                    "http://a.example/more",
                    "http://b.example/feed",
                    "http://sub.b.example/feed",
                    "http://c.example/feed",
                    "http://c.example/more",
                ),
                force=True,
            ),
        ),
    ),
    "a page that goes first by an old copy, after the long delay of the file before": Days(
        hosts=(
            Host(
                name="a.example",
                robots=(
                    Phase(since=0.0, page=Answer(status=302, to="http://b.example/rules.txt")),
                    Phase(
                        since=178950.0,
                        page=Robots(
                            disallow=("/",),
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
                        (
                            Phase(since=0.0, page=Answer(status=410)),
                            Phase(since=3.0, page=Answer()),
                        ),
                    ),
                    (
                        "/rules.txt",
                        (
                            Phase(
                                since=0.0,
                                page=Robots(disallow=("/private/",), rate=7, is_named=True),
                            ),
                        ),
                    ),
                ),
            ),
            Host(
                name="b.example",
                robots=(
                    Phase(since=0.0, page=Robots(disallow=("/more",), crawl_delay=1000)),
                    Phase(since=176399.0, page=Answer(status=404)),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer(status=503, retry_after=1)),
                            Phase(since=178928.0, page=Answer(has_etag=True)),
                        ),
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
            Host(
                name="sub.b.example",
                robots=(
                    Phase(
                        since=0.0,
                        page=Robots(
                            rate=7,
                            opens=(
                                0,
                                12,
                            ),
                        ),
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer(has_etag=True)),
                            Phase(since=176399.0, page=Answer()),
                        ),
                    ),
                    (
                        "/more",
                        (
                            Phase(
                                since=0.0, page=Answer(status=301, to="http://sub.b.example/feed")
                            ),
                            Phase(
                                since=30.0,
                                page=Answer(
                                    status=302, retry_after=20, to="http://sub.b.example/feed"
                                ),
                            ),
                        ),
                    ),
                    (
                        "/private/feed",
                        (Phase(since=0.0, page=Answer(status=503)),),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/private/",), crawl_delay=1000)),),
                    ),
                ),
            ),
            Host(
                name="c.example",
                robots=(
                    Phase(since=0.0, page=Robots(disallow=("/more",))),
                    Phase(
                        since=178919.0,
                        page=Robots(
                            disallow=("/private/",),
                            opens=(
                                6,
                                20,
                            ),
                            is_named=True,
                            has_etag=True,
                        ),
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer(status=503, retry_after=1)),
                            Phase(since=3.0, page=Answer()),
                        ),
                    ),
                    (
                        "/more",
                        (
                            Phase(since=0.0, page=Answer(status=410)),
                            Phase(since=355323.0, page=Answer(has_etag=True)),
                        ),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/more",))),),
                    ),
                ),
            ),
        ),
        blocklist=(
            Phase(since=0.0, page=Answer(fault="CLOSE")),
            Phase(since=176399.0, page=OptOuts()),
            Phase(since=178950.0, page=OptOuts()),
        ),
        steps=(
            Crawl(
                at=0.0,
                sources=(
                    "http://a.example/feed",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                    "http://c.example/feed",
                    "http://c.example/more",
                ),
            ),
            Act(at=176398.0, what="delay", subject="b.example"),
            Crawl(
                at=176400.0,
                sources=(
                    "http://a.example/feed",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                    "http://c.example/feed",
                ),
            ),
            Crawl(
                at=178920.0,
                sources=(
                    "http://a.example/feed",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                    "http://c.example/feed",
                ),
                ahead=18000.0,
            ),
            Act(at=355318.0, what="delay", subject="c.example", seconds=50.0, ahead=18000.0),
            Crawl(
                at=355320.0,
                sources=(
                    "http://a.example/feed",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                    "http://c.example/feed",
                ),
                workers=(Worker(kill=Kill(request=9, is_answered=True, turns=1, seconds=0.0)),),
                ahead=18000.0,
                force=True,
            ),
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
                        (
                            Phase(
                                since=0.0, page=Answer(status=302, to="http://sub.b.example/feed")
                            ),
                            Phase(since=303.0, page=Answer(status=410)),
                        ),
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
                        (
                            Phase(since=0.0, page=Answer(status=500)),
                            Phase(since=330.0, page=Answer(has_etag=True)),
                        ),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/private/",), crawl_delay=2)),),
                    ),
                ),
            ),
            Host(
                name="sub.b.example",
                robots=(
                    Phase(since=0.0, page=Robots(disallow=("/more",), is_named=True)),
                    Phase(since=3.0, page=Answer(status=302, to="http://b.example/rules.txt")),
                    Phase(since=30.0, page=Robots(disallow=("/",), crawl_delay=5, has_etag=True)),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer(status=503, retry_after=108000)),
                            Phase(
                                since=30.0,
                                page=Answer(status=308, to="http://a.example/private/feed"),
                            ),
                        ),
                    ),
                    (
                        "/more",
                        (
                            Phase(
                                since=0.0,
                                page=Answer(status=302, to="http://sub.b.example/private/feed"),
                            ),
                            Phase(since=30.0, page=Answer(has_etag=True)),
                        ),
                    ),
                    (
                        "/rules.txt",
                        (Phase(since=0.0, page=Robots(disallow=("/private/",), crawl_delay=1000)),),
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
                    "http://b.example/more",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                ),
                workers=(
                    Worker(kill=Kill(request=9, is_answered=True, turns=3, seconds=0.0)),
                    Worker(
                        late=20.0, kill=Kill(request=6, is_answered=False, turns=4, seconds=0.05)
                    ),
                ),
            ),
            Crawl(
                at=300.0,
                sources=(
                    "http://a.example/feed",
                    "http://a.example/more",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                ),
                force=True,
            ),
        ),
    ),
    "a date in Retry-After, seen by a clock that is behind": Days(
        hosts=(
            Host(
                name="a.example",
                robots=(
                    Phase(
                        since=0.0,
                        page=Robots(
                            disallow=("/private/",),
                            crawl_delay=1000,
                            opens=(
                                8,
                                9,
                            ),
                        ),
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer()),
                            Phase(since=71999.0, page=Answer()),
                        ),
                    ),
                    (
                        "/more",
                        (
                            Phase(since=0.0, page=Answer()),
                            Phase(since=3.0, page=Answer(status=429, retry_after=1, as_date=True)),
                            Phase(since=97203.0, page=Answer(status=502)),
                        ),
                    ),
                    (
                        "/rules.txt",
                        (
                            Phase(
                                since=0.0,
                                page=Robots(disallow=("/private/",), crawl_delay=40, has_etag=True),
                            ),
                        ),
                    ),
                ),
            ),
            Host(
                name="b.example",
                robots=(
                    Phase(since=0.0, page=Answer(status=500)),
                    Phase(since=3.0, page=Robots(is_named=True)),
                    Phase(
                        since=72003.0,
                        page=Robots(disallow=("/more",), crawl_delay=5, is_named=True),
                    ),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer(has_etag=True)),
                            Phase(since=30.0, page=Answer()),
                        ),
                    ),
                    (
                        "/more",
                        (Phase(since=0.0, page=Answer(status=502)),),
                    ),
                    (
                        "/private/feed",
                        (
                            Phase(since=0.0, page=Answer(has_etag=True)),
                            Phase(since=3.0, page=Answer()),
                            Phase(since=8.0, page=Answer(status=429, retry_after=1, as_date=True)),
                        ),
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
                name="sub.b.example",
                robots=(
                    Phase(since=0.0, page=Answer(status=302, to="http://b.example/rules.txt")),
                ),
                pages=(
                    (
                        "/feed",
                        (
                            Phase(since=0.0, page=Answer(status=307, to="http://b.example/more")),
                            Phase(since=71999.0, page=Answer(fault="CLOSE")),
                        ),
                    ),
                    (
                        "/more",
                        (
                            Phase(since=0.0, page=Answer(status=503, retry_after=1200)),
                            Phase(since=97208.0, page=Answer(status=500)),
                        ),
                    ),
                    (
                        "/rules.txt",
                        (
                            Phase(
                                since=0.0,
                                page=Robots(
                                    disallow=("/private/",),
                                    crawl_delay=40,
                                    opens=(
                                        0,
                                        12,
                                    ),
                                ),
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
                        (
                            Phase(since=0.0, page=Answer(has_etag=True)),
                            Phase(
                                since=72008.0, page=Answer(status=302, to="https://c.example/feed")
                            ),
                        ),
                    ),
                    (
                        "/more",
                        (
                            Phase(
                                since=0.0,
                                page=Answer(status=308, retry_after=400, to="http://10.1.2.3/feed"),
                            ),
                            Phase(
                                since=72008.0,
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
            Host(
                name="d.example",
                robots=(
                    Phase(since=0.0, page=Robots(disallow=("/private/",), rate=7, is_named=True)),
                ),
                pages=(
                    (
                        "/feed",
                        (Phase(since=0.0, page=Answer(has_etag=True)),),
                    ),
                    (
                        "/rules.txt",
                        (
                            Phase(
                                since=0.0,
                                page=Robots(
                                    disallow=("/private/",),
                                    crawl_delay=40,
                                    opens=(
                                        8,
                                        9,
                                    ),
                                    has_etag=True,
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        blocklist=(
            Phase(
                since=0.0,
                page=OptOuts(
                    domains=(
                        "a.example",
                        "b.example",
                        "sub.b.example",
                        "d.example",
                    )
                ),
            ),
            Phase(since=71999.0, page=OptOuts()),
        ),
        steps=(
            Crawl(
                at=0.0,
                sources=(
                    "http://a.example/feed",
                    "http://a.example/more",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://b.example/private/feed",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                    "http://c.example/feed",
                    "http://c.example/more",
                    "http://c.example/private/feed",
                    "http://d.example/feed",
                ),
                workers=(
                    Worker(),
                    Worker(late=3.0),
                ),
            ),
            Act(at=71998.0, what="release", subject="d.example"),
            Crawl(
                at=72000.0,
                sources=(
                    "http://a.example/more",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://b.example/private/feed",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                    "http://c.example/feed",
                    "http://c.example/more",
                    "http://c.example/private/feed",
                    "http://d.example/feed",
                ),
                workers=(
                    Worker(),
                    Worker(late=20.0, kill=Kill(request=5, is_answered=True, turns=0, seconds=0.0)),
                ),
            ),
            Crawl(
                at=97200.0,
                sources=(
                    "http://a.example/more",
                    "http://b.example/feed",
                    "http://b.example/more",
                    "http://b.example/private/feed",
                    "http://sub.b.example/feed",
                    "http://sub.b.example/more",
                    "http://c.example/feed",
                    "http://c.example/more",
                    "http://c.example/private/feed",
                    "http://d.example/feed",
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
