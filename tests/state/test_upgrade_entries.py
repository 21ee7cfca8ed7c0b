"""An upgrade makes the keys of entries anew: what a state of schema 5 knew is known afterwards."""

import contextlib
import json
from dataclasses import replace
from hashlib import sha256

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.helpers.histories import HOST, HTTPS, NOONS, at, document, post
from tests.helpers.visits import Visits
from walsh_scrapy.policy.urls import canonical_url, host_of, url_key
from walsh_scrapy.state import State

#: Entries of each source.
NUMBER = 500
SEEN = 1_777_000_000.0


def sha(*parts):
    return sha256("\0".join(parts).encode()).hexdigest()


def row_of(source, entry, visit, known):
    """Return the row that schema 5 had of an entry; ``known`` has the keys of earlier rows."""
    page = canonical_url(entry.link) if entry.link else f"{source}\0{entry.id}"
    own = sha(page, entry.id) if entry.id else sha(page)
    title = sha(page, "", entry.title)
    keys = [sha(page), own, title]
    if entry.link and host_of(entry.link) != host_of(source):
        keys = [sha256(f"elsewhere {key}".encode()).hexdigest() for key in keys]
    is_first = keys[0] not in known
    known.add(keys[0])
    date = entry.published
    item = {"kind": "feed", "source": source, "url": entry.link, "title": entry.title}
    item |= {"id": entry.id, "published": date and date.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {
        "key": keys[0] if is_first else keys[2] if entry.id is None else keys[1],
        "page_key": None if is_first else keys[0],
        "own_key": keys[1],
        "title_key": keys[2],
        "evident_date": item["published"] or "",
        "source": source,
        "kind": "feed",
        "first_seen": SEEN + visit,
        "item": json.dumps(item, ensure_ascii=False),
        "backfill": False,
        "run": 1,
    }


def entries(title="T{}", link=HOST + "/{}", id_="id-{}", number=NUMBER, date=at):
    def text_of(form, place):
        return form and form.format(place)

    return [
        post(text_of(title, n), text_of(link, n), text_of(id_, n), date and date(1 + n % 28, n % 9))
        for n in range(number)
    ]


#: By source: the documents of earlier visits, and one of now that has nothing new.
STATES = {
    "ordinary": ([entries()], entries()),
    "https now": ([entries(id_=HOST + "/?p={}")],
                  entries(link=HTTPS + "/{}", id_=HTTPS + "/?p={}")),
    "tokens": (
        [entries(link=f"{HOST}/{{}}?t={visit}", number=100) for visit in range(5)],
        entries(link=HOST + "/{}?t=now", number=100),
    ),
    "one id for all": ([entries(id_="x")], entries(id_="x")),
    "numbered": (
        [
            [replace(entry, id=str(n)) for n, entry in enumerate(entries()[start : start + 10])]
            for start in range(NUMBER - 10, -1, -10)
        ],
        [replace(entry, id=str(n)) for n, entry in enumerate(entries()[:10])],
    ),
    "damaged titles": ([entries("Caf\ufffd {}")], entries("Café {}")),
    "no links": ([entries(link=None)], entries(link=None)),
    "no ids": ([entries(id_=None)], entries(id_=None)),
    "one page, no ids": ([entries(link=HOST, id_=None, date=None)],
                         entries(link=HOST, id_=None, date=None)),
    "one page, ids": ([entries(link=HOST)], entries(link=HOST)),
    "elsewhere": ([entries(link="http://other.example/{}")],
                  entries(link="http://other.example/{}")),
}  # fmt: skip


@pytest.fixture
def filled(old):
    """The URL of a state of schema 5 with some thousand entries."""
    with create_engine(old, poolclass=NullPool).begin() as connection:
        for name, (visits, _) in STATES.items():
            source = source_of(name)
            known = set()
            rows = [
                row_of(source, entry, number, known)
                for number, posts in enumerate(visits)
                for entry in on_host_of(source, posts)
            ]
            visited = {"key": url_key(source), "url": source}
            into = "INSERT INTO sources (url_key, url, kind) VALUES (:key, :url, 'feed')"
            connection.execute(text(into), visited)
            names = ", ".join(rows[0])
            values = ", ".join(f":{column}" for column in rows[0])
            connection.execute(text(f"INSERT INTO entries ({names}) VALUES ({values})"), rows)
            if name.startswith("one page"):
                page = {"source": source, "page": sha(f"http://{host_of(source)}")}
                connection.execute(text("INSERT INTO repeated_pages VALUES (:source, :page)"), page)
    return old


def source_of(name):
    return f"http://{name.replace(', ', '-').replace(' ', '-')}.example/feed"


def on_host_of(source, posts):
    """Return entries with links and ids of the host of a source, instead of `HOST`."""
    host = host_of(source)

    def moved(text):
        return text and text.replace(host_of(HOST), host)

    return [replace(entry, link=moved(entry.link), id=moved(entry.id)) for entry in posts]


def test_each_known_entry_stays_known(filled):
    with contextlib.closing(State(filled, upgrade=print)) as state:
        for name, (_, now) in STATES.items():
            visits = Visits(state)
            source = source_of(name)
            posts = [post("One more", f"{HOST}/more", "more", at(29, 9)), *now]
            for expected in (["One more"], []):
                text_of_now = document(on_host_of(source, posts))
                assert visits.read(text_of_now, NOONS[0], source) == expected, name


def test_a_row_that_cannot_be_read_keeps_its_old_key(filled):
    with create_engine(filled, poolclass=NullPool).begin() as connection:
        connection.execute(text("UPDATE entries SET item = 'no JSON' WHERE run = 1"))
        before = connection.execute(
            text("SELECT key, title_key FROM entries WHERE item = 'no JSON'")
        ).all()
    State(filled, upgrade=print).close()
    with create_engine(filled, poolclass=NullPool).begin() as connection:
        after = connection.execute(
            text("SELECT key, title_key FROM entries WHERE item = 'no JSON'")
        ).all()
    assert sorted(map(str, after)) == sorted(map(str, before))


def test_the_other_source_of_an_entry_knows_it_too(old):
    """With another link later, if both gave it an id."""
    other = "http://same.example/feed"
    with create_engine(old, poolclass=NullPool).begin() as connection:
        key = connection.scalar(text(f"SELECT key FROM entries WHERE source = '{other}' LIMIT 1"))
        sighting = text("INSERT INTO sightings VALUES (:key, 'http://blog.example/feed')")
        connection.execute(sighting, {"key": key})
    with contextlib.closing(State(old, upgrade=print)) as state:
        posts = [post(title, f"http://same.example/{n}", f"{n}") for n, title in
                 enumerate(("One", "Two"), 1)]  # fmt: skip
        visits = Visits(state)
        new = visits.read(document(posts), NOONS[0], "http://blog.example/feed")
        assert new == [], "of one that is noted, of the other its page says it"
