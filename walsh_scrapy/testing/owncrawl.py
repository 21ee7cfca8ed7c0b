"""The crawls of this installation as a command that the conformance test can try.

The command is `python -m walsh_scrapy.testing.owncrawl`. The environment has the crawl:
`CONFORMANCE_SEEDS` and `CONFORMANCE_PAGES` are files with URLs of feeds and of feed-less sites.
`CONFORMANCE_FOLDER` is where a state may be kept, and `CONFORMANCE_KEY` the key to sign with. The
arguments of the command, such as `-s` and a setting, go to `scrapy crawl`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Where the key would be published; nothing is requested there.
_AGENT: Final = "https://bot.example/.well-known/http-message-signatures-directory"


def main(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
    """Crawl the feeds, and then the feed-less sites, in separate processes."""
    folder = Path(environment["CONFORMANCE_FOLDER"])
    _crawl("feeds", environment["CONFORMANCE_SEEDS"], environment, arguments)
    if pages := Path(environment["CONFORMANCE_PAGES"]).read_text("utf-8").split():
        declared = folder / "pages.toml"
        entries = (f'[[source]]\nurl = "{url}"\nkind = "llms"\n' for url in pages)
        declared.write_text("".join(entries), "utf-8")
        _crawl("llms", str(declared), environment, arguments)


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
