"""The result of a crawl: its exit status, items, stats, log, and the hits on its servers."""

import ast
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from walsh_scrapy.testing.connections import ConnectionRecord
from walsh_scrapy.testing.hit import Hit

_STATS: Final = re.compile(r"Dumping Scrapy stats:\n(\{.*?\})\s*$", re.DOTALL | re.MULTILINE)
_DATETIME: Final = re.compile(r"datetime\.datetime\(([^()]*)\)")

#: An item or the stats: JSON and Scrapy's own dictionary, of any shape.
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """A crawl that has ended, by itself or by a signal."""

    exit_code: int  #: negative: the signal that ended it
    stdout: str
    stderr: str  #: Scrapy's log
    items: list[Record] = field(default_factory=list)
    stats: Record = field(default_factory=dict)  #: empty if none were dumped into the log
    log: list[Hit] = field(default_factory=list)  #: the requests to the web since the crawl's start
    connections: list[ConnectionRecord] = field(default_factory=list)  #: the same of connections
    seconds: float = 0.0  #: from start to end of the process
    folder: Path = Path()  #: of this run


def read_items(path: Path) -> list[Record]:
    """Read exported JSON lines; a last one that a kill cut short is left out."""
    if not path.exists():
        return []
    # Not splitlines: a JSON string may hold U+2028, which is no end of a line here.
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.strip()]


def read_stats(stderr: str) -> Record:
    """Read the stats that Scrapy dumps into its log; moments in time come as text."""
    found = _STATS.findall(stderr)
    if not found:
        return {}
    try:
        stats: Record = ast.literal_eval(_DATETIME.sub(r"'\1'", found[-1]))
    except (SyntaxError, ValueError):
        return {}  # a stat of another type: the log has it, as text
    return stats
