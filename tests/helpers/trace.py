"""Extensions for a traced crawl: which functions of the package are called, in their order."""

import inspect
import json
import sys
from pathlib import Path

import walsh_scrapy
from tests.helpers.problems import Extension
from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.state import hosts as protocol
from walsh_scrapy.state.hosts import Ask, Worker

PACKAGE = Path(walsh_scrapy.__file__).parent


class Trace(Extension):
    """Writes each call in the package without `testing`, as [file, name], to the file ``TRACE``.

    It begins when the spider is open and ends with the engine. A coroutine that goes on counts as
    called again. The code of a module or a class is no function.
    """

    def __init__(self, crawler):
        super().__init__(crawler)
        self.calls = []
        self._files = {}  # by the names that code has

    def spider_opened(self):
        sys.setprofile(self._profile)

    def engine_stopped(self):
        sys.setprofile(None)
        Path(self.crawler.settings["TRACE"]).write_text(json.dumps(self.calls), "utf-8")

    def _profile(self, frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_NEWLOCALS:
            return
        file = self._files.get(code.co_filename)
        if file is None:
            file = self._files[code.co_filename] = _file_of(code.co_filename)
        if file:
            self.calls.append((file, code.co_qualname))


def _file_of(name):
    """The path of a file in the package, if it is one that counts."""
    path = Path(name)
    if not path.is_relative_to(PACKAGE):
        return ""
    file = path.relative_to(PACKAGE).as_posix()
    return "" if file.startswith("testing/") else file


class KilledWorker(Extension):
    """Another worker owns the host ``KILLED_AT``, has sent it a request, and does nothing more.

    That is what a worker leaves that is killed directly after a beat.
    """

    def spider_opened(self):
        context, host = Crawl.of(self.crawler).context, self.crawler.settings["KILLED_AT"]
        killed = Worker("killed", context.started_at)

        def work(connection):
            protocol.beat(connection, killed)
            assert protocol.take(connection, host, killed)
            assert protocol.begin(connection, host, killed, Ask(1.0, 30.0, 1e9))

        context.state.write(work)
