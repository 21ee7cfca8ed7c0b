"""The blocklist in force: the last good one, however old, until a better one is adopted (R3)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import Request

from walsh_scrapy.options import PREFIX, BadSetting
from walsh_scrapy.policy.blocklist import Blocklist, Entry
from walsh_scrapy.policy.blocklist_document import is_bundled
from walsh_scrapy.policy.localblocklist import parse_local
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.politeness.listreading import published_error, read_list
from walsh_scrapy.runtime.requests import Validators
from walsh_scrapy.state.documents import BlocklistCopy, hash_of

if TYPE_CHECKING:
    from scrapy.http import Response

    from walsh_scrapy.politeness.prerequisites import Steps
    from walsh_scrapy.runtime.context import Context

logger = logging.getLogger(__name__)

#: Seconds after which a failed fetch is tried again; sooner if the list's own refresh is shorter.
RETRY_SECONDS = 3600.0


def load_local_list(path: str) -> Blocklist:
    """Read the file of `WALSH_BLOCKLIST_FILE`; an empty path is an empty list (decision 31).

    Raises BadSetting with the file, the place in it, and the reason.
    """
    if not path:
        return Blocklist.EMPTY
    try:
        return parse_local(Path(path).read_bytes(), path)
    except (OSError, ValueError) as error:  # InvalidBlocklist names the file itself
        reason = getattr(error, "strerror", None)
        raise BadSetting(
            f"{PREFIX}BLOCKLIST_FILE: {f'{path}: {reason}' if reason else error}"
        ) from None


class BlocklistCache:
    """The blocklist as the state has it, when it has to be fetched again, and the local list.

    Raises BadSetting if the file of the local list cannot be used.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._store = context.state.blocklist
        self._url = context.options.blocklist_url
        self._schema_url = context.options.blocklist_schema_url
        self.hash: str | None = None  #: of the list in force, as the state names its copy
        self._local_file = context.options.blocklist_file
        self._local = load_local_list(self._local_file)
        self._list, self._checked_at, self._due_at = self._stored()
        self._tried_at = self._checked_at

    @property
    def is_due(self) -> bool:
        """Whether the list has to be fetched before any target.

        It has to as well if its last fetch lies in the future: then the clock was set back.
        """
        is_fresh = self._tried_at <= self._clock.now() < self._due_at
        return bool(self._url) and not is_fresh

    def log_local(self) -> None:
        """Log how many domains the operator's own list adds."""
        if len(self._local):
            domains = count_of(len(self._local), "domain")
            logger.info("%s blocks %s beside the published list", self._local_file, domains)

    @property
    def has_list(self) -> bool:
        """Whether there is any list: a published one, or one of the operator's own."""
        return bool(self._url) or len(self._local) > 0

    def blocks(self, url: str) -> Entry | None:
        """Return the entry that blocks a URL, of the published list or of the local one."""
        return self._list.blocks(url) or self._local.blocks(url)

    def blocks_for_list(self, url: str) -> Entry | None:
        """Return the entry that blocks a URL which is asked for the sake of the published list.

        The local list cannot keep the published one from being fetched (decision 31).
        """
        return self._list.blocks(url)

    def validators(self, url: str) -> Validators | None:
        """Return the last validators of the list or its schema at ``url``."""
        known = self._store.find(url)
        return None if known is None else Validators(url, known.etag, known.last_modified)

    def adopt(self, candidate: Response, schema: Response | None) -> Steps:
        """Put a fetched list in force if it is valid under our schema and the published one.

        Yields each step that may take long, and is sent what it finds.
        """
        if schema is not None:
            self._store.keep(self._schema_url, self._document(schema, self._schema_url))
        known = self._store.find(self._schema_url) if self._schema_url else None
        adopted = yield read_list(candidate.body)
        if isinstance(adopted, BaseException):
            self.keep_last(str(adopted))
            return
        if known and not is_bundled(known.body):
            found = yield published_error(candidate.body, known.body)
            if isinstance(found, BaseException):
                logger.warning("%s is not used: %s", self._schema_url, found)
            elif found is not None:
                self.keep_last(found)
                return
        self._list = adopted
        self._keep(self._document(candidate, self._url))
        self.hash = hash_of(candidate.body)
        self._due_in(adopted.refresh.total_seconds())
        if adopted.problem:
            logger.warning("%s: %s", self._url, adopted.problem)
        domains = count_of(len(adopted), "domain")
        logger.info("blocklist of %s adopted from %s", domains, self._url)

    def keep_unchanged(self, response: Response) -> None:
        """Keep the list in force: its server answered 304."""
        known = self._store.find(self._url)
        if known is not None:
            given = self._document(response, self._url)
            etag = given.etag or known.etag
            last_modified = given.last_modified or known.last_modified
            self._keep(BlocklistCopy(known.body, etag, last_modified, given.checked_at))
        self._due_in(self._list.refresh.total_seconds())

    def came_meanwhile(self, _ended: float = 0.0) -> bool:
        """Return True if another crawl has fetched the list since this one looked at the state."""
        return self._store.checked_at(self._url) != self._checked_at

    def has_come(self) -> bool:
        """Adopt the list of another crawl, and return True if it is not due any more."""
        if self.came_meanwhile():
            self._list, self._checked_at, self._due_at = self._stored()
            self._tried_at = self._checked_at
        return not self.is_due

    def keep_last(self, problem: str) -> None:
        """Keep the last good list in force, and log ``problem``, a sentence.

        If another crawl has fetched one since, that is the last one.
        """
        if self.has_come():
            return
        has_one = self._list is not Blocklist.EMPTY
        fallback = "the last good one stays in force" if has_one else "there is none yet"
        logger.warning("%s: %s; %s", self._url, problem, fallback)
        self._due_in(min(RETRY_SECONDS, self._list.refresh.total_seconds()))

    def _keep(self, copy: BlocklistCopy) -> None:
        """Keep a copy of the list; a look at the state knows it as our own."""
        self._store.keep(self._url, copy)
        self._checked_at = copy.checked_at

    def _due_in(self, seconds: float) -> None:
        self._tried_at = self._clock.now()
        self._due_at = self._tried_at + seconds

    def _stored(self) -> tuple[Blocklist, float, float]:
        document = self._store.find(self._url)
        if document is None:
            return Blocklist.EMPTY, 0.0, 0.0
        self.hash = hash_of(document.body)
        known = Blocklist.adopted(document.body)
        due_at = document.checked_at + known.refresh.total_seconds()
        return known, document.checked_at, due_at

    def _document(self, response: Response, url: str) -> BlocklistCopy:
        """Return the copy of a document, with its validators if ``url`` itself answered.

        Those of the URL that it redirected to must not be sent to ``url`` (decision 17).
        """
        given, asked = Validators.of(response), Request(url).url
        etag, modified = (given.etag, given.last_modified) if given.url == asked else (None, None)
        return BlocklistCopy(response.body, etag, modified, self._clock.now())
