"""The examples in the docstrings of the policy modules are right."""

import doctest
import pkgutil
from importlib import import_module

import pytest

from walsh_scrapy import policy

MODULES = [found.name for found in pkgutil.walk_packages(policy.__path__, "walsh_scrapy.policy.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert any(test.examples for name in MODULES for test in finder.find(import_module(name), name))
