"""The order of the gates is stated once; the add-on, the gates and the docs agree with it."""

import re

import pytest
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list

from tests.helpers import ROOT
from walsh_scrapy.addon import Addon
from walsh_scrapy.runtime.gates import REPLACED, SPIDER_GATES, Gate

#: The contract's.
ORDER = [1, 5, 10, 15, 20, 100, 549, 560, 590, 600, 860, 890]


@pytest.fixture
def forced():
    """The settings of a project that has the add-on and nothing else."""
    settings = Settings()
    Addon.update_pre_crawler_settings(settings)
    Addon(None).update_settings(settings)
    return settings


def test_the_orders_are_those_of_the_contract():
    assert [gate.order for gate in Gate] == ORDER
    for gate in Gate:
        assert f"{gate.kind.__module__}.{gate.kind.__qualname__}" == gate.path


def test_the_add_on_sets_the_gates_as_they_are_stated(forced):
    chain = forced.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
    assert {path: chain[path] for path in chain if path.startswith("walsh_scrapy.")} == {
        gate.path: gate.order for gate in Gate
    }
    assert [chain[path] for path in REPLACED] == [None] * len(REPLACED)
    paths = build_component_list(chain)
    assert [path for path in paths if path.startswith("walsh_scrapy.")] == [
        gate.path for gate in Gate
    ]
    spider_chain = forced.get_component_priority_dict_with_base("SPIDER_MIDDLEWARES")
    assert {path: spider_chain[path] for path in SPIDER_GATES} == SPIDER_GATES


def test_the_docs_name_the_orders_as_they_are_stated():
    text = (ROOT / "docs" / "reuse.md").read_text()
    orders = {gate.path.split(".", 2)[2]: gate.order for gate in Gate}
    rows = {
        name: int(order)
        for name, order in re.findall(r"^\| `(\w+\.\w+Middleware)` \| (\d+) \|", text, re.MULTILINE)
    }
    assert len(rows) >= 8
    assert rows == {name: orders[name] for name in rows}
