"""The blocklist, and how it is fetched. The last good list is used until a better one comes (R3).

The list is read in the crawl itself. The published schema is applied in the isolated process,
because a schema can take forever: a pattern that backtracks, or a tree of `$ref`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy import Request
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.crawl.childprocess import TooCostly
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.hosts.queue import OWNED_HOST_TIMEOUT_SECONDS, RequestPreparer
from walsh_scrapy.crawl.ticket import Hop, Validators, note, rank_of, request_of, ticket_of
from walsh_scrapy.exceptions import (
    BadAnswer,
    Denied,
    HasCome,
    MachineTrouble,
    NotDelivered,
    NotModified,
    RequestDeferred,
    StillDue,
)
from walsh_scrapy.files import MAX_WHOLE_BYTES, open_file
from walsh_scrapy.options import PREFIX, BadSetting
from walsh_scrapy.policy.blocklist import (
    Blocklist,
    Entry,
    InvalidBlocklist,
    check_schema,
    is_bundled,
    parse_local,
)
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.copy import MAX_HOPS
from walsh_scrapy.policy.urls import resolve_reference
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.state.evidence import hash_of
from walsh_scrapy.state.records import BlocklistCopy
from walsh_scrapy.wire.endpoints import causes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.isolated import Reader
    from walsh_scrapy.crawl.parts import Crawl

logger = logging.getLogger(__name__)

#: Bytes of the list: 1,000,000 domains, or half as many with day and reason. A list that could not
#: grow would ignore opt-outs, so it may be larger than any other body.
MAX_LIST_BYTES: Final = 40 * 1024 * 1024
#: Bytes of a list that is parsed in the event loop, which takes less than 0.2 s.
MAX_INLINE_BYTES: Final = 256 * 1024
#: Bytes of a published schema; a larger one is ignored. The bundled one has 2,000.
MAX_SCHEMA_BYTES: Final = 256 * 1024
#: Responses that lead to another URL (RFC 9110 15.4).
_REDIRECTS: Final = (301, 302, 303, 307, 308)
#: Seconds after which a failed fetch is tried again; sooner if the list's refresh is shorter.
RETRY_SECONDS = 3600.0


def load_local_list(path: str) -> Blocklist:
    """Read the operator's own list (`WALSH_BLOCKLIST_FILE`). An empty path gives an empty list.

    Raises BadSetting with the file, the place in it, and the reason.
    """
    if not path:
        return Blocklist.EMPTY
    try:
        with open_file(Path(path), MAX_WHOLE_BYTES) as file:
            return parse_local(file.read(), path)
    except (OSError, ValueError) as error:  # InvalidBlocklist names the file itself
        reason = getattr(error, "strerror", None) or error
        problem = str(error) if isinstance(error, InvalidBlocklist) else f"{path}: {reason}"
        raise BadSetting(f"{PREFIX}BLOCKLIST_FILE: {problem}") from None


async def read_list(body: bytes) -> Blocklist:
    """Parse a list, a long one in a thread. Raises InvalidBlocklist."""
    if len(body) <= MAX_INLINE_BYTES:
        return Blocklist.parse(body)
    return await asyncio.to_thread(Blocklist.parse, body)


class BlocklistCache:
    """The published list, as the state has it, and the operator's own list.

    Raises BadSetting if the file of the local list cannot be used.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._store = context.state.blocklist
        self._url = context.options.blocklist_url
        self._schema_url = context.options.blocklist_schema_url
        self.hash: str | None = None  #: the SHA-256 of the current list
        self._local_file = context.options.blocklist_file
        self._local = load_local_list(self._local_file)
        self._list = Blocklist.EMPTY
        self._requested_at = self._tried_at = self._due_at = 0.0
        self._use(self._store.find(self._url))

    @property
    def requested_at(self) -> float | None:
        """When the list was last requested, with any result; None if it never was."""
        return self._tried_at or None

    @property
    def is_due(self) -> bool:
        """Whether the list must be fetched before any target.

        That is so too if its last fetch is in the future, because the clock was set back.
        """
        is_fresh = self._tried_at <= self._clock.now() < self._due_at
        return bool(self._url) and not is_fresh

    def log_local(self) -> None:
        """Log the number of domains that the operator's own list adds."""
        if len(self._local):
            domains = count_of(len(self._local), "domain")
            logger.info("%s blocks %s in addition to the published list", self._local_file, domains)

    @property
    def has_list(self) -> bool:
        """Whether there is any list: a published one, or one of the operator's own."""
        return bool(self._url) or len(self._local) > 0

    @property
    def is_adopted(self) -> bool:
        """Whether there is a published list, however old."""
        return self._list is not Blocklist.EMPTY

    def blocks(self, url: str, *, for_list: bool = False) -> Entry | None:
        """Return the entry that blocks a URL, in the published list or in the operator's own.

        The operator's list cannot prevent a fetch of the published one: a request ``for_list`` is
        checked against the published list only.
        """
        return self._list.blocks(url) or (None if for_list else self._local.blocks(url))

    def validators(self, url: str) -> Validators | None:
        """Return the last validators of the list or its schema at ``url``."""
        copy = self._store.find(url)
        return None if copy is None else Validators(url, copy.etag, copy.last_modified)

    async def adopt(self, candidate: Response, schema: Response | None, reader: Reader) -> None:
        """Use a fetched list if it is valid by our schema and by the published one."""
        if schema is not None:
            self._store.keep(self._schema_url, self._copy(schema, self._schema_url), schema.body)
        try:
            adopted = await read_list(candidate.body)
            await self._check_published(candidate.body, reader)
        except InvalidBlocklist as error:
            self.keep_last(str(error))
            return
        copy = self._copy(candidate, self._url, adopted.text())
        self._store.keep(self._url, copy, candidate.body)
        self._list = adopted
        self.hash = copy.copy
        self._use(copy)
        if adopted.problem:
            logger.warning("%s: %s", self._url, adopted.problem)
        domains = count_of(len(adopted), "domain")
        logger.info("blocklist of %s adopted from %s", domains, self._url)

    async def _check_published(self, body: bytes, reader: Reader) -> None:
        """Raise InvalidBlocklist for a list that the published schema forbids.

        A schema that is no valid schema, or costs too much, is ignored.
        """
        schema = self._store.document(self._schema_url) if self._schema_url else None
        if schema is None or is_bundled(schema):
            return
        if len(schema) > MAX_SCHEMA_BYTES:
            size = f"{len(schema)} bytes, more than {MAX_SCHEMA_BYTES}"
            logger.warning("%s is ignored: it has %s", self._schema_url, size)
            return
        try:
            await reader.call(self._schema_url, check_schema, body, schema)
        except (TooCostly, StillDue) as error:
            logger.warning("%s is ignored. %s", self._schema_url, error)

    def keep_unchanged(self, response: Response) -> None:
        """Use the current list for longer: its server answered 304."""
        copy = self._store.find(self._url)
        if copy is not None:
            answer = self._copy(response, self._url)
            copy = replace(
                copy,
                etag=answer.etag or copy.etag,
                last_modified=answer.last_modified or copy.last_modified,
                requested_at=answer.requested_at,
            )
            self._store.keep(self._url, copy)
            self._use(copy)

    def has_come(self) -> bool:
        """Adopt a newer list of another crawl. Return True if no list has to be fetched now."""
        if self._store.requested_at(self._url) != self._requested_at:
            self._use(self._store.find(self._url))
        return not self.is_due

    def keep_last(self, problem: str, retry: float | None = None) -> None:
        """Go on with the last good list, and log ``problem``, a sentence.

        It is fetched again after ``retry`` seconds, by default `RETRY_SECONDS`. If another crawl
        has fetched a list since, that list is used.
        """
        if self.has_come():
            return
        fallback = "the last good one is still used" if self.is_adopted else "there is none yet"
        logger.warning("%s: %s; %s", self._url, problem, fallback)
        self._tried_at = self._clock.now()
        refresh = self._list.refresh.total_seconds()
        self._due_at = self._tried_at + min(retry or RETRY_SECONDS, refresh)

    def _use(self, copy: BlocklistCopy | None) -> None:
        """Use the list in a copy, until it is due."""
        if copy is None:
            return
        if copy.copy != self.hash:
            self._list = Blocklist.of_text(copy.adopted)
            self.hash = copy.copy
        self._requested_at = self._tried_at = copy.requested_at
        self._due_at = copy.requested_at + self._list.refresh.total_seconds()

    def _copy(self, response: Response, url: str, adopted: str = "") -> BlocklistCopy:
        """Return the copy of a document, with its validators if ``url`` itself answered.

        Validators belong to one URL: those of a redirect's target must not be sent to ``url``.
        """
        validators = Validators.from_response(response)
        wanted = Request(url).url
        etag, modified = (
            (validators.etag, validators.last_modified)
            if validators.url == wanted
            else (None, None)
        )
        return BlocklistCopy(hash_of(response.body), etag, modified, self._clock.now(), adopted)


class PublishedList(BlocklistCache, RequestPreparer):
    """Fetches the published list when it is due; until then all targets wait."""

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl.context)
        self._reader = crawl.reader
        self._stats = crawl.stats
        self._access = crawl.access
        self._fetcher = crawl.fetcher
        self._engine = crawl.engine
        # Set while there is no list, and its server was not asked: nothing else is requested then.
        self._deferral: StillDue | None = None

    def is_ready(self, request: Request) -> bool:
        """Return True if a request needs no fetch of the list."""
        is_known = not self.is_due and self._deferral is None
        return is_known or rank_of(request) is not Rank.TARGET

    def will_pass(self, request: Request) -> bool:
        """Return False for a request that the list blocks."""
        return self.blocking(request) is None

    async def prepare(self, request: Request) -> None:
        """Fetch the list if it is due; raise Denied for a request that it blocks."""
        if not self.is_ready(request):
            await self.prepare_list()
        if self.blocking(request):
            raise Denied("blocklist", "it is listed")

    async def prepare_list(self) -> None:
        """Fetch the list. Raises StillDue if there is none yet, and its server was not asked."""
        if self._deferral is None or self.is_due:
            await self._fetcher.fetch_once("blocklist", self._fetch)
        if self._deferral is not None:
            raise self._deferral

    def checks(self, request: Request) -> bool:
        """Return True if a request is checked against the list; the list's own URL is not."""
        ticket = ticket_of(request)
        return self.has_list and (ticket.rank is not Rank.OPERATOR or bool(ticket.hops))

    def blocking(self, request: Request) -> Entry | None:
        """Return the entry that blocks a request, or None."""
        for_list = ticket_of(request).serves_blocklist
        return self.blocks(request.url, for_list=for_list) if self.checks(request) else None

    async def _fetch(self) -> None:
        """Fetch the list, and its schema if it has one, unless another worker has fetched them."""
        logger.info("waiting for the blocklist: %s", self._url)
        self._deferral = None
        with self._fetcher.hold_back_targets():
            try:
                async with self._access.owning(self._url):
                    if self.has_come():
                        return
                    candidate = await self._requested(self._url)
                    schema = await self._schema() if self._schema_url else None
                    await self.adopt(candidate, schema, self._reader)
            except HasCome:
                pass
            except NotModified as error:
                self.keep_unchanged(error.response)
            except Exception as error:  # noqa: BLE001 - whatever it is, the last list stays
                if not isinstance(error, RequestDeferred):
                    self._stats.inc_value("walsh/blocklist/failed")
                reason = reason_of(error, self._url)
                # After a wait for another worker the fetch has not failed: that one may succeed.
                has_waited = isinstance(error, StillDue)
                retry = OWNED_HOST_TIMEOUT_SECONDS if has_waited else None
                self.keep_last(f"the blocklist could not be fetched: {reason}", retry)
                is_unasked = has_waited and not isinstance(error, MachineTrouble)
                if is_unasked and not self.is_adopted:
                    self._deferral = self._access.make_deferral("there is no blocklist yet")
                refused = next((it for it in causes(error) if isinstance(it, NotDelivered)), None)
                if refused is not None and not self.is_adopted:
                    self._end_run(refused)
            finally:
                self._stats.set_value("walsh/blocklist/missing", int(not self.is_adopted))

    def _end_run(self, error: NotDelivered) -> None:
        """End the run: there is no list, and code of the project is the reason."""
        self._deferral = self._access.make_deferral("there is no blocklist yet")
        self._engine.end("gate_failed", f"{error}, and there is no blocklist yet. {error.remedy}")

    async def _schema(self) -> Response | None:
        """Return the published schema; None if it is unchanged or cannot be fetched."""
        try:
            return await self._requested(self._schema_url)
        except NotModified:
            return None
        except HasCome:
            raise
        except Exception as error:  # noqa: BLE001 - the last one is used, or the bundled one
            reason = reason_of(error, self._schema_url)
            logger.warning("%s could not be fetched: %s", self._schema_url, reason)
            return None

    @contextmanager
    def _unless_it_has_come(self, _request: Request) -> Iterator[None]:
        """Raise HasCome, and make no attempt, if another crawl has fetched the list."""
        if self.has_come():
            raise HasCome
        yield

    async def _requested(self, url: str) -> Response:
        """Request a document, and follow its redirects.

        Raises the exceptions of ``Fetcher.send``.
        """
        validators = self.validators(url)
        hops: tuple[Hop, ...] = ()
        not_before = 0.0
        while True:
            request = _request(url)
            note(request, hops=hops, not_before=not_before, validators=validators)
            response = await self._fetcher.send(request, Rank.OPERATOR, self._unless_it_has_come)
            location = response.headers.get("Location") or b""
            target = resolve_reference(response.url, location)
            if response.status not in _REDIRECTS or target is None:
                break
            hops = (*hops, Hop(request_of(response).url, response.status))
            not_before = ticket_of(request_of(response)).not_before
            if len(hops) > MAX_HOPS:
                reason = f"redirected more than {MAX_HOPS} times, at last to {target}"
                raise BadAnswer(response, reason)
            url = target
        if not 200 <= response.status < 300:
            raise HttpError(response, "no success")
        return response


def _request(url: str) -> Request:
    return Request(
        url,
        headers={"Accept": "application/json, */*;q=0.5"},
        meta={"dont_redirect": True, "download_maxsize": MAX_LIST_BYTES},
    )
