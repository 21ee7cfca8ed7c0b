"""States that a version wrote: an SQLite file and a PostgreSQL dump in tests/state/old.

    python -m tests.helpers.oldstate

writes those of the schema of this version. Once it is released, they are never written again: each
later version has to upgrade them. Writing them needs pg_dump and a PostgreSQL at 127.0.0.1:5432.
"""

import contextlib
import gzip
import re
import sqlite3
import subprocess
import tempfile
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.helpers.sites import LIST_URL, blocklist, feed, site
from walsh_scrapy.state import State
from walsh_scrapy.state.tables import VERSION
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.simulation import DAY, EPOCH, simulate
from walsh_scrapy.testing.web import Reply, Site, redirect

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "state" / "old"
SERVER = "postgresql+psycopg://postgres@127.0.0.1:5432/"
#: Statements of a dump that are for psql, or say how to read it.
_NOT_NEEDED = re.compile(rb"^(--.*|\\.*|SET .*|SELECT pg_catalog.set_config.*|)\n", re.MULTILINE)

LLMS_TXT = "# Docs\n\n## Guide\n\n- [Start](/start): how to begin\n"
SOURCES = [
    *(f"http://{name}.example/feed" for name in ("blog", "same", "gone", "held", "denied")),
    "http://moved.example/feed",
    "http://out.example/feed",
    {"url": "http://docs.example/", "kind": "llms"},
]
SETTINGS = {"WALSH_BLOCKLIST_URL": LIST_URL}
#: When the last run of these states ended at the latest, in seconds of their simulated time.
ENDED = DAY + 3600.0


def web(*, later=False):
    """The sites that were crawled; ``later`` one has an entry more."""
    posts = ("One", "Two", "Three") if later else ("One", "Two")
    return [
        Site("operator.example", pages={"/blocklist.json": blocklist("out.example")}),
        site("blog.example", "User-agent: *\nCrawl-delay: 2\n", feed=feed(posts=posts)),
        Site("same.example", "", {"/feed": feed(host="same.example", etag='"1"')}),
        Site("gone.example", "", {"/feed": Reply(status=404)}),
        Site("held.example", "", {"/feed": Reply(status=429, headers={"Retry-After": "864000"})}),
        site("denied.example", "User-agent: *\nDisallow: /\n"),
        Site("moved.example", "", {"/feed": redirect("/new"), "/new": feed(host="moved.example")}),
        site("out.example"),
        Site("docs.example", "", {"/": Reply(status=406), "/llms.txt": Reply(LLMS_TXT)}),
    ]


def crawl(url, folder, start, *, later=False, **options):
    """Crawl all sources at one time into the state at a URL, in simulated time; return the runs."""
    folder.mkdir(exist_ok=True)
    file = write_sources(folder / "sources.toml", SOURCES)
    given = {"folder": folder, "project": ROOT, "sources": file, **options}
    given["settings"] = SETTINGS | {"WALSH_STATE_URL": url}
    return [
        simulate(*web(later=later), starts=[start + 1800.0 * number], spider=spider, **given)[0]
        for number, spider in enumerate(("feeds", "llms"))
    ]


def write(url, folder):
    """Write a state as this version does."""
    for start in (0.0, DAY + 60.0):
        crawl(url, folder, start)
    with contextlib.closing(State(url, lambda: EPOCH + ENDED)) as state:
        state.hosts.set_delay("blog.example", 60.0, "its owner asked for it")


def load(file, url):
    """Bring a state of `OLD` to a new database."""
    written = gzip.decompress(file.read_bytes())
    if url.startswith("sqlite:"):
        Path(url.removeprefix("sqlite:///")).write_bytes(written)
        return
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.connection.cursor().execute(written)


def older():
    """Return the files of all states with an older schema than that of this version."""
    this = {OLD / f"schema-{VERSION}.{name}.gz" for name in ("sql", "sqlite3")}
    return set(OLD.glob("*.gz")) - this


def keep(name, written):
    (OLD / f"schema-{VERSION}.{name}.gz").write_bytes(gzip.compress(written, mtime=0))


def main():
    """Write the states of this version."""
    OLD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = folder / "walsh.sqlite3"
        write(f"sqlite:///{path}", folder / "sqlite")
        with contextlib.closing(sqlite3.connect(path)) as state:
            state.execute("VACUUM")
            state.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        keep("sqlite3", path.read_bytes())

        name = "walsh_old_state"
        server = create_engine(f"{SERVER}postgres", isolation_level="AUTOCOMMIT")
        with server.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
            connection.execute(text(f"CREATE DATABASE {name}"))
            try:
                write(f"{SERVER}{name}", folder / "postgresql")
                dump = ["pg_dump", "--inserts", "--no-owner", "--no-privileges", "--no-comments"]
                place = f"--dbname=postgresql://postgres@127.0.0.1/{name}"
                dumped = subprocess.run([*dump, place], check=True, capture_output=True)
            finally:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        server.dispose()
        keep("sql", _NOT_NEEDED.sub(b"", dumped.stdout))


if __name__ == "__main__":
    main()
