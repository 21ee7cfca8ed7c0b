"""Other bots that use the state of a crawl, and other states that its folder used.

Two bots on one state wait for each other's delays and holds, and visit each other's sources, so
each of them should have a state of its own. The bots that one project declares are no accident: its
settings may name one, and each of its spiders another.

A crawl with a wrong `WALSH_STATE_URL` begins a new state, and visits every source again. A note in
its folder, ``.scrapy/walsh-state``, has the id of the state, and tells such a state from the first
one of a project. A state that is not new may have another id for good reasons (it was moved, or a
copy of it was noticed), so its note is renewed without a word.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from scrapy.spiderloader import get_spider_loader
from scrapy.utils.project import get_project_settings

from walsh_scrapy.files import atomic_file
from walsh_scrapy.options import BadSetting, identity_of
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.useragents import newest_of_others
from walsh_scrapy.policy.wording import printable

if TYPE_CHECKING:
    from pathlib import Path

    from walsh_scrapy.crawl.context import Context


logger = logging.getLogger(__name__)

#: Crawls that began earlier do not count: their bot may have moved to another state.
RECENT_SECONDS: Final = 30 * 86_400.0
_MAX_CRAWLS: Final = 100


def warn_of_other_bots(context: Context) -> None:
    """Warn of other bots that used the state since the last crawl of this bot.

    Called before the row of the run is written. So a bot that was renamed is mentioned once, and
    bots that take turns are mentioned each time. Raises StateUnavailable.
    """
    if not _find_others(context, 1):  # the last crawl was one of this bot, as nearly always
        return
    others = _find_others(context, _MAX_CRAWLS)
    project = tokens_of_project()
    token = context.options.ua_token
    if token.lower() in project:
        others = {name: at for name, at in others.items() if name.lower() not in project}
    if others:
        names = ", ".join(
            f"{printable(name)} (its last crawl began at {format_moment(at)})"
            for name, at in others.items()
        )
        logger.warning(
            "another bot uses the state %s: %s; it shares delays, holds and visits with %s. Give "
            "each bot a database or a schema of its own. If your bot was renamed, ignore this",
            context.state.database,
            names,
            token,
        )


def _find_others(context: Context, max_crawls: int) -> dict[str, float]:
    """Return the other bots that crawled since this bot did, among the newest crawls."""
    since = context.clock.now() - RECENT_SECONDS
    crawls = context.state.runs.latest(max_crawls, since, only_crawls=True)
    begun = ((str(crawl.settings.get("ua_token", "")), crawl.started_at) for crawl in crawls)
    return newest_of_others(begun, context.options.ua_token)


def tokens_of_project() -> set[str]:
    """Return the product tokens, in lower case, that the settings and spiders of a project name."""
    settings = get_project_settings()
    # A script may crawl in a project with a module that cannot be imported, which is not its fault.
    settings.set("SPIDER_LOADER_WARN_ONLY", value=True)
    spiders = get_spider_loader(settings)
    tokens: set[str] = set()
    spider_classes = [spiders.load(name) for name in spiders.list()]
    for spidercls in (None, *spider_classes):
        own = settings.copy()
        if spidercls is not None:
            spidercls.update_settings(own)
        try:
            identity = identity_of(own, spidercls)
        except BadSetting:  # its own crawl does not start
            continue
        if identity is not None:
            tokens.add(identity.ua_token.lower())
    return tokens


_NOTE: Final = ".scrapy/walsh-state"
_MAX_NOTE_BYTES: Final = 100


def report_new_state(context: Context, folder: Path | None) -> None:
    """Log at the end of a crawl that its state is new, and note its id in a folder.

    A state is new until a crawl has ended in it. If the folder of the sources file has the note of
    another state, that is worth a warning. Raises StateUnavailable and StateError.
    """
    state = context.state
    if state.database.is_in_memory:
        return
    noted_id = _read_note(folder) if folder else None
    if not state.runs.has_ended_crawl(besides=context.run):
        if noted_id in (None, state.id):
            logger.info("the state %s is new: no crawl ended in it before", state.database)
        else:
            logger.warning(
                "the state %s is new, but crawls with sources in %s used another one: what that "
                "one knows of visits, entries and holds is unknown here. If you did not choose a "
                "new state, set WALSH_STATE_URL to the other one",
                state.database,
                folder,
            )
    if folder and noted_id != state.id:
        _write_note(folder, state.id)


def _read_note(folder: Path) -> str | None:
    """Return the id of the state that a folder notes; None if there is no note."""
    try:
        with (folder / _NOTE).open("rb") as file:
            return file.read(_MAX_NOTE_BYTES).decode("ascii", "replace").strip() or None
    except OSError:
        return None


def _write_note(folder: Path, state_id: str) -> None:
    """Note the id of a state. Nothing depends on it, so a folder that is read-only is no error."""
    try:
        with atomic_file(folder / _NOTE) as file:
            file.write(f"{state_id}\n".encode())
    except OSError as error:
        logger.debug("the state is not noted in %s: %s", folder / _NOTE, error)
