"""The pending requests of a job (``JOBDIR``), on disk from the moment when they are queued.

    queued -> handed out -> over: forgotten
                         -> deferred, or the process is killed: kept for the next start

A clean end moves them to the queue of Scrapy's own scheduler, so that a job can go on without the
add-on. The next start takes over whatever that queue has, also from before the add-on.
"""

from __future__ import annotations

import json
import logging
import pickle
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.utils.request import request_from_dict

from walsh_scrapy.crawl.scrapyinternals import ScrapyQueue
from walsh_scrapy.crawl.ticket import Hop, note, ticket_of
from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler

    from walsh_scrapy.crawl.context import Clock

logger = logging.getLogger(__name__)

#: In the folder of the job.
FILE: Final = "walsh-requests.sqlite3"
#: A request may have cookies, credentials and the password of a proxy. SQLite gives this mode to
#: the files beside it too.
_MODE: Final = 0o600
#: ``request`` is NULL while the request is in Scrapy's queue; ``redirects`` is a `Redirects`.
_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY, request BLOB, redirects TEXT NOT NULL, fingerprint BLOB NOT NULL
)"""
_INSERT: Final = "INSERT INTO requests (request, redirects, fingerprint) VALUES (?, ?, ?)"
#: The errors of a request that cannot be pickled, as in ``scrapy.squeues``.
_UNSERIALIZABLE: Final = (pickle.PicklingError, AttributeError, TypeError, ValueError)


class Redirects(NamedTuple):
    """The redirects that led to a request. The next start trusts these, and no ``meta``."""

    hops: tuple[Hop, ...] = ()
    not_before: float = 0.0  #: epoch seconds: the end of the wait that they asked for
    public_only: bool = False  #: a response from a public address led to the request

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the redirects that ``json.dumps`` wrote."""
        hops, not_before, public_only = json.loads(text)
        return cls(tuple(Hop(*hop) for hop in hops), not_before, public_only)


class _Known(NamedTuple):
    """The facts in the job's own file about a request in Scrapy's queue."""

    place: int  #: in the order of all requests
    redirects: Redirects


class Job:
    """The requests of one job that are not over yet. Raises sqlite3.Error if its file fails.

    Redirects are kept in a file of our own, because code of a project may write anything into
    ``request.meta``.
    """

    def __init__(self, crawler: Crawler, folder: str, clock: Clock) -> None:
        self._crawler = crawler
        self._clock = clock
        self._scrapys = ScrapyQueue(crawler, folder)
        self._path = Path(folder, FILE)
        with suppress(OSError):  # SQLite then says why the file cannot be opened
            self._path.touch(_MODE)
            self._path.chmod(_MODE)  # also of a file from before
        # Without a transaction each statement is committed at once.
        self._file = sqlite3.connect(self._path, isolation_level=None)
        try:
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_TABLE)
        except sqlite3.Error:
            self._file.close()
            raise
        self._rows: dict[Request, int | None] = {}  # None: it cannot be written
        self._handed_out: set[Request] = set()
        self._deferred: dict[bytes, int] = {}  # rows by the fingerprints of their requests
        self._lost: list[Request] = []  # deferred ones that cannot be written
        self._restored: set[bytes] = set()  # fingerprints of what the last start has left

    def restore_requests(self) -> list[Request]:
        """Return the requests that the last start has left, in their order."""
        rows = self._file.execute("SELECT id, request, redirects, fingerprint FROM requests")
        stored: dict[bytes, _Known | None] = {}
        restored: list[tuple[int, Request]] = []
        unreadable = 0
        for number, blob, text, fingerprint in rows.fetchall():
            redirects = Redirects.from_json(text)
            if blob is None:
                stored[fingerprint] = _Known(number, redirects)
                continue
            try:
                request = request_from_dict(pickle.loads(blob), spider=self._crawler.spider)  # noqa: S301 - ours
            except Exception:  # noqa: BLE001 - of any class of the project
                unreadable += 1
                continue
            self._restore(request, redirects)
            stored[fingerprint] = None
            self._rows[request] = number
            restored.append((number, request))
        taken_over = self._take_over(stored)
        requests = sorted(restored + taken_over, key=lambda row: row[0])
        if left_behind := unreadable + self._scrapys.unreadable + self._scrapys.count_left():
            logger.warning(
                "%s of this job cannot be read and will not be sent: JOBDIR has them in another "
                "form. Set SCHEDULER_PRIORITY_QUEUE, SCHEDULER_DISK_QUEUE and the spider's methods "
                "as they were when the job was stopped",
                count_of(left_behind, "request"),
            )
        self._restored = {self._fingerprint(request) for _, request in requests}
        if requests:
            logger.info("the job goes on with %s", count_of(len(requests), "request"))
        return [request for _, request in requests]

    def _take_over(self, stored: dict[bytes, _Known | None]) -> list[tuple[int, Request]]:
        """Move the requests of Scrapy's queue to our file; return them with their order.

        ``stored`` has None for a request that is in our file too: a kill interrupted its move.
        """
        taken_over: list[tuple[int, Request]] = []
        last = self._file.execute("SELECT coalesce(max(id), 0) FROM requests").fetchone()[0]
        self._file.execute("BEGIN")
        for place, request in enumerate(self._scrapys.take(), start=last + 1):
            facts = stored.get(self._fingerprint(request), _Known(place, Redirects()))
            if facts is None:
                continue
            self._restore(request, facts.redirects)
            self.keep(request)
            taken_over.append((facts.place, request))
        self._file.execute("DELETE FROM requests WHERE request IS NULL")
        self._file.execute("COMMIT")
        self._scrapys.close()
        return taken_over

    def keep(self, request: Request) -> None:
        """Write a request that is queued; one that was handed out may come back."""
        self._handed_out.discard(request)
        if request in self._rows:
            return
        try:
            blob = pickle.dumps(request.to_dict(spider=self._crawler.spider), protocol=4)
        except _UNSERIALIZABLE:
            self._crawler.stats.inc_value("scheduler/unserializable")
            self._rows[request] = None
            return
        row = (blob, json.dumps(self._redirects_of(request)), self._fingerprint(request))
        self._rows[request] = self._file.execute(_INSERT, row).lastrowid

    def _redirects_of(self, request: Request) -> Redirects:
        ticket = ticket_of(request)
        wait = ticket.not_before - self._clock.monotonic()
        not_before = self._clock.now() + wait if wait > 0.0 else 0.0
        return Redirects(ticket.hops, not_before, ticket.public_only)

    def _restore(self, request: Request, redirects: Redirects) -> None:
        """Give a request its redirects, as if it was redirected in this run."""
        if redirects == Redirects():
            return
        wait = redirects.not_before - self._clock.now()
        not_before = self._clock.monotonic() + wait if wait > 0.0 else 0.0
        note(
            request,
            hops=redirects.hops,
            not_before=not_before,
            public_only=redirects.public_only,
        )

    def forget_deferred(self, request: Request) -> None:
        """Forget a request that was deferred in this run: it was queued again."""
        row = self._deferred.pop(self._fingerprint(request), None) if self._deferred else None
        if row is not None:
            self._delete(row)

    def repeats(self, request: Request) -> bool:
        """Return True for a start request that the last start has left, and the spider makes again.

        Scrapy's duplicate filter lets it pass: those from ``start_urls`` have ``dont_filter``.
        """
        is_start_request = request.meta.get("is_start_request", False)
        return is_start_request and self._fingerprint(request) in self._restored

    def forget(self, request: Request) -> None:
        """Forget a request that is over, or was a duplicate."""
        row = self._rows.pop(request, None)
        if row is not None:
            self._delete(row)

    def hand_out(self, request: Request) -> None:
        """Mark a request as handed out: it is kept until it is over."""
        if request in self._rows:
            self._handed_out.add(request)

    def sweep(self, is_over: Callable[[Request], bool], deferred: Container[Request]) -> None:
        """Forget the requests that are over; deferred ones stay in the file."""
        for request in [request for request in self._handed_out if is_over(request)]:
            self._handed_out.remove(request)
            if request not in deferred:
                self.forget(request)
            elif (row := self._rows.pop(request)) is not None:
                self._deferred[self._fingerprint(request)] = row
            else:
                self._lost.append(request)

    def close(self) -> None:
        """Leave the requests that are not over to the next start, in Scrapy's queue if possible.

        Those that cannot be written are lost, which is logged.
        """
        lost = [*self._lost, *(request for request, row in self._rows.items() if row is None)]
        if lost:
            logger.warning(
                "%s cannot be kept for the next start of the job, because a callback or value "
                "cannot be pickled; the first is %s. Use methods of the spider as callbacks",
                count_of(len(lost), "request"),
                lost[0],
            )
        self._leave_to_scrapy()
        self._file.close()

    def _leave_to_scrapy(self) -> None:
        if self._scrapys.is_foreign:
            return
        moved: list[tuple[int]] = []
        rows = self._file.execute("SELECT id, request FROM requests WHERE request IS NOT NULL")
        for number, blob in rows.fetchall():
            try:
                request = request_from_dict(pickle.loads(blob), spider=self._crawler.spider)  # noqa: S301 - ours
                self._scrapys.put(request)
            except Exception as error:  # noqa: BLE001 - of any queue of the project
                logger.debug("request %d of the job stays in %s: %r", number, FILE, error)
                continue
            moved.append((number,))
        self._scrapys.close()
        self._scrapys.hide()
        self._file.execute("BEGIN")
        self._file.executemany("UPDATE requests SET request = NULL WHERE id = ?", moved)
        self._file.execute("COMMIT")

    def _delete(self, row: int) -> None:
        self._file.execute("DELETE FROM requests WHERE id = ?", (row,))

    def _fingerprint(self, request: Request) -> bytes:
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None  # noqa: S101 - Scrapy makes it before the scheduler
        return fingerprinter.fingerprint(request)
