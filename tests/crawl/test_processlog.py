"""The log as JSON: one object a line, whatever strangers say, and wherever Scrapy wants its log."""

import errno
import json
import logging
import os
import sys

import pytest
from scrapy.settings import Settings
from scrapy.utils.log import configure_logging

from tests.helpers import needs_scrapy_2_19
from walsh_scrapy.addon import Addon
from walsh_scrapy.crawl import processlog
from walsh_scrapy.crawl.processlog import (
    MAX_LINE_CHARACTERS,
    UNNEEDED,
    JsonFormatter,
    SafeFormatter,
    log_handler,
    protect_log,
    quiet_scrapy,
)
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.wording import printable

needs_json_log = needs_scrapy_2_19("LOG_INSTALL_ROOT_HANDLER")


@pytest.fixture
def clean_log(monkeypatch):
    """Leave the handlers of this process as they were."""
    before, level = list(logging.root.handlers), logging.root.level
    monkeypatch.setattr(processlog, "_json_handler", None)
    yield
    for handler in set(logging.root.handlers) - set(before):
        logging.root.removeHandler(handler)
        handler.close()
    logging.root.setLevel(level)


def logged(message, *args, **more):
    record = logging.LogRecord("scrapy.core", logging.ERROR, "x.py", 1, message, args, **more)
    record.created = 1_700_000_000.25
    record.spider = object()  # Scrapy attaches it
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert "\n" not in line
    return json.loads(line)


def test_a_record_is_one_object():
    assert logged("%s failed: %d", "http://x/", 3, exc_info=None) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "ERROR",
        "logger": "scrapy.core",
        "message": "http://x/ failed: 3",
    }


def test_text_of_sites_is_safe_after_json_is_decoded():
    said = 'a\n{"level": "INFO"}\x1b[2J\u202e\ud800'
    shown = r'a\n{"level": "INFO"}\x1b[2J\u202e\ud800'
    assert logged("it said %s", said, exc_info=None)["message"] == f"it said {shown}"
    assert len(logged("%s", "\x1b" * 500_000, exc_info=None)["message"]) <= MAX_LINE_CHARACTERS
    table = logged("ended:\n  %s", "fetched 1\n  failed\x1b", exc_info=None)["message"]
    assert table == "ended:\n  fetched 1\n  failed\\x1b"


def test_an_exception_stands_beside_the_message():
    try:
        float("\x1b[2J")
    except ValueError:
        told = logged("it broke", exc_info=sys.exc_info())
    assert told["message"] == "it broke"
    assert told["exception"].startswith("Traceback (")
    assert told["exception"].endswith(r"'\x1b[2J'")


@needs_json_log
@pytest.mark.parametrize("appends", [True, False])
def test_the_log_is_where_scrapys_settings_say(clean_log, tmp_path, appends):
    file = tmp_path / "feeds.log"
    file.write_text("{}\n")
    settings = Settings(
        {
            "WALSH_LOG_FORMAT": "json",
            "LOG_FILE": str(file),
            "LOG_FILE_APPEND": appends,
            "LOG_LEVEL": "WARNING",
        }
    )
    for _ in range(2):  # two crawls in one process have one log
        Addon.update_pre_crawler_settings(settings)
        configure_logging(settings)
    logging.getLogger("walsh_scrapy").info("not logged")
    logging.getLogger("walsh_scrapy").warning("logged")
    before = ["{}"] if appends else []
    *first, line = file.read_text().splitlines()
    assert first == before
    assert json.loads(line)["message"] == "logged"


@needs_json_log
def test_no_log_means_no_log(clean_log, capsys):
    settings = Settings({"WALSH_LOG_FORMAT": "json", "LOG_ENABLED": False})
    Addon.update_pre_crawler_settings(settings)
    logging.getLogger("walsh_scrapy").error("not logged")
    assert capsys.readouterr().err == ""


@needs_json_log
def test_a_log_of_json_stays_one_when_it_is_protected(clean_log, capsys):
    Addon.update_pre_crawler_settings(Settings({"WALSH_LOG_FORMAT": "json"}))
    calls = []
    handler = log_handler()
    for _ in range(2):
        protect_log(handler, lambda: calls.append(1))
    handler.emit(logging.makeLogRecord({"msg": "%s", "args": ("x" * 9000,), "levelname": "INFO"}))
    assert json.loads(capsys.readouterr().err)["message"].endswith("x…")
    handler.setStream(Full())
    for _ in range(2):
        handler.emit(logging.makeLogRecord({"msg": "x"}))
    assert calls == [1]
    (told,) = capsys.readouterr().err.splitlines()
    assert "No space left" in told


def test_another_format_is_refused(clean_log):
    with pytest.raises(BadSetting, match="WALSH_LOG_FORMAT is 'xml'"):
        Addon.update_pre_crawler_settings(Settings({"WALSH_LOG_FORMAT": "xml"}))


def test_json_is_refused_before_scrapy_2_19(clean_log, monkeypatch):
    monkeypatch.setattr("walsh_scrapy.options.version_info", (2, 18, 0))
    with pytest.raises(BadSetting, match=r"WALSH_LOG_FORMAT is 'json', but .+ upgrade Scrapy"):
        Addon.update_pre_crawler_settings(Settings({"WALSH_LOG_FORMAT": "json"}))
    assert log_handler() is None


class Full:
    """A stream on a full disk."""

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self):
        pass


# Scrapy's lines that no operator needs are DEBUG lines; all others stay as they are.


@pytest.fixture
def filters():
    """Scrapy's loggers as they were, after the test."""
    before = {name: list(logging.getLogger(name).filters) for name in UNNEEDED}
    yield
    for name, kept in before.items():
        logging.getLogger(name).filters[:] = kept


@pytest.mark.parametrize(
    ("logger", "level", "message", "shown"),
    [
        ("scrapy.utils.log", logging.INFO, "Scrapy %(version)s started", logging.DEBUG),
        ("scrapy.crawler", logging.INFO, "Overridden settings:\n%(settings)s", logging.DEBUG),
        ("scrapy.crawler", logging.INFO, "Received %(signame)s, shutting down", logging.INFO),
        ("scrapy.middleware", logging.WARNING, "Enabled nothing", logging.WARNING),
        ("scrapy.core.engine", logging.INFO, "Error while removing request", logging.INFO),
        ("scrapy.core.engine", logging.INFO, "Closing spider (%(reason)s)", logging.DEBUG),
    ],
)
def test_the_level_of_a_line(filters, caplog, logger, level, message, shown):
    quiet_scrapy()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger(logger).log(
            level, message, dict.fromkeys(("version", "settings", "reason", "signame"), "x")
        )
    assert [record.levelno for record in caplog.records] == [shown]


# Whatever strangers' text is in a log line: one line, bounded, and nothing a terminal obeys.

FORMATTER = SafeFormatter(logging.Formatter("%(levelname)s: %(message)s").format)


def line(message, *args, exc_info=None):
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, message, args, exc_info)
    return FORMATTER.format(record)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a\n2026-01-01 [x] INFO: all is well", r"a\n2026-01-01 [x] INFO: all is well"),
        ("\x1b[2J\x9b1m\x07\x00\x7f", r"\x1b[2J\x9b1m\x07\x00\x7f"),
        ("abc\u202ecod.exe\u2066", r"abc\u202ecod.exe\u2066"),
        ("a\u2028b\u2029c\x85d\re", r"a\u2028b\u2029c\x85d\re"),
        ("\ud800", r"\ud800"),
        ("na\u00efve \U0001f469\u200d\U0001f52c", "na\u00efve \U0001f469\u200d\U0001f52c"),
    ],
)
def test_a_value_is_on_one_line_and_harmless(said, shown):
    assert printable(said) == shown
    assert line("%s failed: %s", "http://x/", said) == f"INFO: http://x/ failed: {shown}"
    assert line("%(why)s", {"why": ValueError(said)}) == f"INFO: {shown}"
    assert shown in line("%d of %.1f: %s\n%s", 1, 2.0, "\x1b", said).replace("\n", r"\n")


def test_a_value_is_bounded():
    assert line("%s failed: %s", "http://x/", "a" * 500_000).endswith("a…")
    assert len(line("%s", "\x1b" * 500_000)) <= MAX_LINE_CHARACTERS + len("INFO: ")


def test_tables_and_tracebacks_keep_their_lines():
    assert (
        line("ended:\n  %s", "fetched  1\n  failed\t2") == "INFO: ended:\n  fetched  1\n  failed\t2"
    )
    try:
        float("\x1b[2J")
    except ValueError as error:
        text = line(
            "%s broke in C:\\temp", "it\n", exc_info=(ValueError, error, error.__traceback__)
        )
    first, second, *_ = text.split("\n")
    assert first == r"INFO: it\n broke in C:\temp"
    assert second.startswith("Traceback (")
    assert text.endswith(r"'\x1b[2J'")
