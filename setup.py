"""For tools that build eggs, such as scrapyd-deploy; everything is said in pyproject.toml."""

from setuptools import setup

setup()
