"""What the package imports is declared in pyproject.toml, with its reason, and little else is."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
#: Only for type checkers, which bring it.
STUBS = {"_typeshed"}
#: `zoneinfo` finds it by itself.
DATA = {"tzdata"}


def names_of(requirements):
    return {re.match(r"[\w-]+", line)[0].lower() for line in requirements}


def imported_modules():
    for path in (ROOT / "walsh_scrapy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module.partition(".")[0]


def test_exactly_what_is_imported_is_declared():
    foreign = set(imported_modules()) - sys.stdlib_module_names - STUBS - {"walsh_scrapy"}
    distributions = packages_distributions()
    imported = {distributions[module][0].lower().replace("_", "-") for module in foreign}
    assert imported | DATA == names_of(PROJECT["dependencies"]) | names_of(EXTRAS)


def test_a_crawl_needs_few_packages():
    assert len(PROJECT["dependencies"]) <= 18


def test_each_dependency_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for line in [*PROJECT["dependencies"], *EXTRAS]:
        assert re.search(rf'"{re.escape(line)}", *# \w', text), line
