"""``walsh init``: a new project, with a crawler for feeds.

Writes a Scrapy project: settings with the identity to fill in, a sources file with one feed, and
the spiders feeds and llms. Overwrites nothing. Exit status: 0 it is written, 1 a file is there
already, 2 it cannot be written. Example: walsh init my-feeds
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.tools.call import CommandError, WrongCall
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call

_SETTINGS: Final = '''\
"""The settings of this project: those of walsh-scrapy, and what is different here."""

from walsh_scrapy.settings import *  # noqa: F403

BOT_NAME = %s
SPIDER_MODULES = ["spiders"]

# Robots.txt, delays, backoff: every request passes the gates of the add-on.
ADDONS = {"walsh_scrapy.Addon": 500}

# Who sends the requests: a line that names your bot and a page about it, and the name of your bot
# in robots.txt. No request is sent before both are set. For example:
# WALSH_USER_AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/)"
# WALSH_UA_TOKEN = "Example-Bot"
WALSH_USER_AGENT = ""
WALSH_UA_TOKEN = ""

# The list of hosts that opted out of your bot, as a URL. Without one there is no such list.
WALSH_BLOCKLIST_URL = ""
'''
_SPIDER: Final = '''\
"""``scrapy crawl {name}``: {what}."""

from walsh_scrapy import spiders


class {kind}(spiders.{kind}):
    """{which} that the sources file declares."""

    name = "{name}"
'''
_SOURCES: Final = """\
# The declared targets of `scrapy crawl feeds` and `scrapy crawl llms`, which ask for nothing else (R6).
#
# A source needs its URL. The rest is optional:
#   name   what you call it
#   tags   words to choose by: scrapy crawl feeds -a only=python
#   every  how often at most, as an ISO-8601 duration (P1D, PT12H); at least WALSH_MIN_REVISIT (a day)
#   pause  the least time between two requests to its host, as a duration or in seconds, up to PT12H
#   kind   "feed" (RSS, Atom, JSON Feed), or "llms" for a site without a feed

[[source]]
url = "https://blog.python.org/feeds/posts/default"
name = "Python Insider"
tags = ["python"]
"""  # noqa: E501 - the lines of the file
#: The files of a project, except its settings.
_FILES: Final = {
    "scrapy.cfg": "[settings]\ndefault = settings\n",
    "sources.toml": _SOURCES,
    "spiders/__init__.py": '"""The spiders of this project."""\n',
    "spiders/feeds.py": _SPIDER.format(
        name="feeds",
        what="RSS, Atom and JSON feeds, their metadata only",
        kind="FeedsSpider",
        which="The feeds",
    ),
    "spiders/llms.py": _SPIDER.format(
        name="llms",
        what="sites without a feed, by their own markdown or llms.txt",
        kind="LlmsSpider",
        which="The sites without a feed",
    ),
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder of the project")


def run(call: Call) -> int:
    """Write the project, and print the commands that come next."""
    folder = call.arguments.folder
    write_project(folder)
    settings = folder / "settings.py"
    told = f"""\
{folder} is a project now. Set WALSH_USER_AGENT and WALSH_UA_TOKEN in {settings}. Then:
  cd {shlex.quote(str(folder))} && scrapy crawl feeds
  scrapy export -o entries.csv"""
    print_lines(told.splitlines())
    return 0


def write_project(folder: Path) -> None:
    """Write a new project; raise CommandError, and write nothing, if a file is there already.

    Raises WrongCall if a file cannot be written.
    """
    files = {"settings.py": _SETTINGS % json.dumps(folder.resolve().name)} | _FILES
    for name in files:
        if os.path.lexists(folder / name):
            there = f"{folder / name} exists already, so nothing was written; name another folder"
            raise CommandError(there)
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise WrongCall(f"{path} cannot be written: {why}") from error
