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
}
