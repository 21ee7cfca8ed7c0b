"""Runs this package's own spiders as a command for the conformance test.

The command is `python -m walsh_scrapy.testing.owncrawl`; its arguments, for example `-s
NAME=VALUE`, are passed to `scrapy crawl`. What to crawl comes from the environment, which the
conformance test sets: `CONFORMANCE_SEEDS` and `CONFORMANCE_PAGES` are files with the URLs of feeds
and of sites without a feed, `CONFORMANCE_FOLDER` is the folder for the state, `CONFORMANCE_KEY` the
key to sign with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The URL at which the key would be published. Nothing is requested from it.
_AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"


def main(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
    """Crawl the feeds, and then the sites without a feed, in separate processes."""
    folder = Path(environment["CONFORMANCE_FOLDER"])
    _crawl("feeds", environment["CONFORMANCE_SEEDS"], environment, arguments)
    if pages := Path(environment["CONFORMANCE_PAGES"]).read_text("utf-8").split():
        file = folder / "pages.toml"
        entries = (f'[[source]]\nurl = "{url}"\nkind = "llms"\n' for url in pages)
        file.write_text("".join(entries), "utf-8")
        _crawl("llms", str(file), environment, arguments)


def _crawl(
    spider: str, sources: str, environment: Mapping[str, str], arguments: Sequence[str]
) -> None:
    command = [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"sources={sources}"]
    if environment.get("CONFORMANCE_FORCE"):
        command += ["-a", "force=1"]
    settings = {
        "WALSH_STATE_URL": f"sqlite:///{environment['CONFORMANCE_FOLDER']}/state.sqlite3",
        "WALSH_BLOCKLIST_URL": environment["CONFORMANCE_BLOCKLIST"],
        "WALSH_BLOCKLIST_SCHEMA_URL": "",
        "WALSH_SIGNING_KEY": environment["CONFORMANCE_KEY"],
        "WALSH_SIGNATURE_AGENT": _AGENT,
    }
    for name, value in settings.items():
        command += ["-s", f"{name}={value}"]
    command += arguments
    subprocess.run(command, check=False)  # noqa: S603 - our command, by our interpreter


if __name__ == "__main__":
    main(os.environ, sys.argv[1:])
