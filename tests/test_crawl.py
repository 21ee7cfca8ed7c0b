"""How long a crawl deletes old rows from its state: nobody waits for it (decision 18)."""

import pytest
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl import crawl as module
from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.engine import Engine
from walsh_scrapy.state import State


@pytest.fixture
def settings(tmp_path):
    return {"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"}


@pytest.fixture
def pruned(monkeypatch, fake_clock):
    """Return a list with the seconds of each pruning, on a state with too many old rows."""
    took = []

    def prune(self, now, log_seconds, goes_on):
        began = fake_clock.at
        while goes_on() and fake_clock.at < began + 100.0:
            fake_clock.at += 1.0
        took.append(fake_clock.at - began)
        return False

    monkeypatch.setattr(State, "prune", prune)
    return took


def run(settings, fake_clock):
    crawl = Crawl(get_crawler(settings_dict=settings), fake_clock)
    assert crawl.context
    crawl.close()


def test_a_run_deletes_old_rows_for_2_s_before_its_first_request_and_for_60_s_at_its_end(
    settings, fake_clock, pruned, caplog
):
    with caplog.at_level("INFO"):
        run(settings, fake_clock)
    assert pruned == [2.0, 60.0]
    told = [line for line in caplog.messages if "old rows" in line]
    assert len(told) == 2
    assert told[1].startswith("60 s were too short")


def test_other_crawls_of_the_process_do_not_wait_for_long(
    settings, fake_clock, pruned, monkeypatch
):
    other = Crawl(get_crawler(settings_dict=settings), fake_clock)
    monkeypatch.setattr(Engine, "is_open", property(lambda engine: engine is other.engine))
    run(settings, fake_clock)
    assert pruned == [2.0, 2.0]


def test_a_run_that_is_stopped_leaves_its_old_rows(
    settings, fake_clock, pruned, monkeypatch, caplog
):
    monkeypatch.setattr(module, "is_stopping", lambda: True)
    with caplog.at_level("INFO"):
        run(settings, fake_clock)
    assert pruned == [0.0, 0.0]
    assert not any("old rows" in line for line in caplog.messages)
