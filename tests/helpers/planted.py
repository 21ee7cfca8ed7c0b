"""Rows that a test plants in the tables of a state; moments are in hours after `NOW`."""

from sqlalchemy import insert

from walsh_scrapy.state.tables import metadata

#: 2026-05-23 06:00:00 UTC, and a part of a second that is cut off.
NOW = 1779516000.9
HOUR = 3600.0
URL = "http://a.example/feed"
SOURCE = {"url_key": 1, "url": URL, "kind": "feed"}
ROBOTS = b"User-agent: *"
EVIDENCE = {"robots": 1, "robots_at": -2, "host": "a.example", "url": URL, "run": 1}
#: What a planted row has unless its case says otherwise; moments are hours after now.
DEFAULTS = {
    "files": {"id": 1, "path": "/sources.toml", "sha256": "x", "read_at": 0},
    "declared": {**SOURCE, "file": 1, "every": 0.0, "details": "", "host": "a.example"},
    "sources": {**SOURCE, "visited_at": -1, "not_before": -1, "outcome": "fetched"},
    "hosts": {"host": "a.example"},
    "workers": {"id": "us", "run": 1, "started_at": -2, "expires_at": 0.01},
    "overrides": {
        "host": "a.example",
        "override": "delay",
        "seconds": 60.0,
        "made_at": -1,
        "reason": "they asked",
    },
    "runs": {"id": 1, "spider": "feeds", "started_at": -2, "versions": "{}", "settings": "{}"},
    "requests": {
        **EVIDENCE,
        "requested_at": -1,
        "delay": 1.0,
        "hold": 0.0,
        "status": 200,
        "gates": "robots: allowed",
        "purpose": "target",
        "source": "",
    },
    "denials": {**EVIDENCE, "denied_at": -1, "gate": "robots", "reason": "line 2"},
    "copies": {
        "id": 1,
        "sha256": "abc",
        "kind": "robots",
        "body": ROBOTS,
        "first_used_at": -1,
        "last_used_at": 0,
    },
    "robots": {"origin": "http://a.example:80", "requested_at": -1, "body": ROBOTS},
    "blocklist": {
        "url": "http://l.example/",
        "copy": "abc",
        "requested_at": -1,
        "adopted": '[21600.0, ""]\nb.example\t\t',
    },
    "entries": {
        "key": "1",
        "source": URL,
        "kind": "feed",
        "first_seen": -3,
        "item": "{}",
        "run": 1,
    },
}
#: Columns of `sources` that its declaration repeats.
REPEATED = ("visited_at", "not_before", "failures", "unconnected")


def plant(state, clock, rows):
    """Write rows by table to a state, now."""
    clock.at = NOW
    rows = dict(rows)
    declaration = rows.pop("declared", {})
    with_files = declaration != "none" and ("sources" in rows or declaration or not rows)
    if with_files:
        visited = DEFAULTS["sources"] | rows.get("sources", {}) if "sources" in rows else {}
        facts = {name: visited[name] for name in REPEATED if name in visited}
        rows = {"files": {}, "declared": facts | declaration, **rows}

    def write(connection):
        for name, row in rows.items():
            values = DEFAULTS[name] | row
            table = metadata.tables[name]
            connection.execute(insert(table).values({k: stored(k, v) for k, v in values.items()}))

    state.write(write)


def stored(column, value):
    """Return a value of a case as its column has it."""
    if value == "NULL":
        return None
    if column in ("etag", "last_modified"):
        return value.encode("latin-1")
    is_moment = column.endswith(("_at", "_since", "_until")) or column in (
        "not_before",
        "first_seen",
    )
    return NOW + value * HOUR if is_moment else value
