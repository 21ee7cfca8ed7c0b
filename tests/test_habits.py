"""The check of `make check` finds each habit, and nothing else."""

import pytest

from tests.helpers.habits import find_habits


@pytest.mark.parametrize(
    "text",
    [
        "MOST_BYTES = 3",
        "LONGEST: int = 3",
        "_LEAST_WAIT_SECONDS = 3",
        "for each in hosts: pass",
        "names = [each.name for each in hosts]",
        "for number, each in enumerate(hosts): pass",
        f"def test_{'x' * 56}(): pass",
        f"async def test_{'x' * 56}(): pass",
        "import tests.crawl.test_log",
        "from tests.crawl.test_log import line",
        "from tests.crawl import test_log",
        "from tests import test_parsers",
        "from tests.state.conftest import opened",
    ],
)
def test_a_habit_is_found_on_its_line(text):
    assert [line for line, _ in find_habits(f"\n{text}\n")] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "MAX_BYTES = UTMOST_CARE = 3",
        "for host in each: pass",
        f"def test_{'x' * 55}(): pass",
        f"def write_{'x' * 90}(): pass",
        "from tests.helpers import sites",
        "from scrapy.utils.test import get_crawler",
        "from . import walsh",
    ],
)
def test_other_code_has_no_habit(text):
    assert find_habits(text) == []
