"""The order of the gates is stated once; the add-on, the gates and the docs agree with it."""

import re
import shutil
import subprocess
import sys

import pytest
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list

from tests.helpers import ROOT
from walsh_scrapy.addon import Addon
from walsh_scrapy.runtime.gates import REPLACED, SPIDER_GATES, Gate


@pytest.fixture
def forced():
    """The settings of a project that has the add-on and nothing else."""
    settings = Settings()
    Addon.update_pre_crawler_settings(settings)
    Addon(None).update_settings(settings)
    return settings


def test_each_gate_is_where_it_says():
    assert [gate.order for gate in Gate] == sorted(gate.order for gate in Gate)
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


def test_the_docs_have_a_row_for_each_gate_in_their_order():
    text = (ROOT / "docs" / "reuse.md").read_text()
    rows = re.findall(r"^\| `(\w+\.\w+Middleware)`[^|]*\| ", text, re.MULTILINE)
    assert rows == [gate.path.split(".", 2)[2] for gate in Gate]


def test_the_gates_name_no_other_order_than_the_stated_one():
    for gate in Gate:
        told = re.findall(r"\(order (\d+)", gate.kind.__doc__)
        assert set(told) <= {str(gate.order)}, gate


GATE = """
from walsh_scrapy.exceptions import Denied


class NightMiddleware:
    async def process_request(self, request):
        raise Denied("night", "it is night")
"""
ASKED = """
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list

from walsh_scrapy.addon import Addon
from walsh_scrapy.runtime.components import component_problems
from walsh_scrapy.runtime.gates import ADVICE
from walsh_scrapy.tools.summary import RequestCounts

settings = Settings({"ADDONS": {"walsh_scrapy.Addon": 500}})
Addon(None).update_settings(settings)
chain = settings.get_component_priority_dict_with_base("DOWNLOADER_MIDDLEWARES")
paths = [path for path in build_component_list(chain) if path.startswith("walsh_scrapy.")]
at = paths.index("walsh_scrapy.downloadermiddlewares.night.NightMiddleware")
print(chain[paths[at]], paths[at - 1].rpartition(".")[2], paths[at + 1].rpartition(".")[2])
print(*component_problems(settings))
print(*RequestCounts.of({"walsh/night/denied": 2, "walsh/own/denied": 1}).denied.items())
print(ADVICE["night"])
"""


def test_a_gate_is_one_file_and_one_line(tmp_path):
    package = tmp_path / "walsh_scrapy"
    shutil.copytree(ROOT / "walsh_scrapy", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "downloadermiddlewares" / "night.py").write_text(GATE)
    gates = package / "runtime" / "gates.py"
    line = '    NIGHT = 30, "night.NightMiddleware", "Wait until it is day."\n'
    text = gates.read_text()
    gates.write_text(text.replace("    ROBOTS = ", f"{line}    ROBOTS = "))
    answer = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.stderr == ""
    chain, problems, counts, advice = answer.stdout.splitlines()
    assert chain == "30 PublicWebMiddleware RobotsMiddleware"
    assert problems == ""
    assert counts.endswith("('publicweb', 0) ('night', 2) ('robots', 0) ('own', 1)")
    assert advice == "Wait until it is day."
