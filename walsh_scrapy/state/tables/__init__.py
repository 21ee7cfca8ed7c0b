"""The tables of the state, by room. Times are epoch seconds, durations seconds."""

from walsh_scrapy.state.tables.documents import blocklist, copies, robots, robots_waits
from walsh_scrapy.state.tables.hosts import (
    choices,
    hosts,
    metadata,
    overrides,
    schema_version,
    workers,
)
from walsh_scrapy.state.tables.log import COPIED, FOR_RULES, ITS_URL, denials, requests
from walsh_scrapy.state.tables.record import entries, runs, sightings
from walsh_scrapy.state.tables.sources import declared, files, indexes, sources

__all__ = [
    "COPIED",
    "FOR_RULES",
    "ITS_URL",
    "blocklist",
    "choices",
    "copies",
    "declared",
    "denials",
    "entries",
    "files",
    "hosts",
    "indexes",
    "metadata",
    "overrides",
    "requests",
    "robots",
    "robots_waits",
    "runs",
    "schema_version",
    "sightings",
    "sources",
    "workers",
]
