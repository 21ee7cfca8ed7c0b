"""The lines of Scrapy that no operator needs are DEBUG lines in this project's own crawls."""

from __future__ import annotations

import logging
from typing import Final

#: By logger: how the lines begin that tell nothing of a run; all lines of a logger begin with "".
#: What failed a source is told by our own line, with the reason.
UNNEEDED: Final = {
    "scrapy.addons": ("Enabled addons",),
    "scrapy.core.engine": ("Spider opened", "Closing spider", "Spider closed"),
    "scrapy.crawler": ("Overridden settings",),
    "scrapy.middleware": ("Enabled ",),
    "scrapy.spidermiddlewares.httperror": ("Ignoring response",),
    "scrapy.utils.log": ("Scrapy ", "Versions"),
}


def quiet_scrapy() -> None:
    """Let the lines that nobody needs at INFO be DEBUG lines, for the rest of the process.

    A filter stays where it is when Scrapy sets up its log; the level of a logger does not.
    """
    for name, beginnings in UNNEEDED.items():
        logging.getLogger(name).addFilter(_Demotion(beginnings))


class _Demotion(logging.Filter):
    """Makes INFO lines that begin in one of some ways DEBUG lines."""

    def __init__(self, beginnings: tuple[str, ...]) -> None:
        super().__init__()
        self._beginnings = beginnings

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the level of the record; it is written if the handler's level allows it."""
        if record.levelno == logging.INFO and str(record.msg).startswith(self._beginnings):
            record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return True
