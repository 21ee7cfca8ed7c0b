"""Find habits that make code hard to read, as a line each: FILE:LINE: what to write instead.

`make check` runs this on the package, the spiders, the tests and the benchmarks.
"""

import ast
import re
import sys

from tests.helpers import ROOT

MAX_TEST_NAME_CHARACTERS = 60

_SUPERLATIVE = re.compile(r"_*(MOST|LEAST|LONGEST)(_|$)")
_TEST_MODULE = re.compile(r"tests\.(\w+\.)*(test_\w+|conftest)$")


def imported_modules(node):
    """Return the names of all modules that a node of a syntax tree may import."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def habits_of(node):
    """Yield what to write instead of the habits of one node of a syntax tree."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        if _SUPERLATIVE.match(node.id):
            yield f"begin {node.id} with MAX_ or MIN_"
        if node.id == "each":
            yield "call a loop variable what it is, not each"
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name.startswith("test_") and len(node.name) > MAX_TEST_NAME_CHARACTERS:
            yield f"name {node.name} in at most {MAX_TEST_NAME_CHARACTERS} characters"
    elif any(_TEST_MODULE.match(name) for name in imported_modules(node)):
        yield "import no test module: put what tests share into tests/helpers"


def find_habits(text):
    """Return the habits of a Python file, each with its line."""
    return [(node.lineno, habit) for node in ast.walk(ast.parse(text)) for habit in habits_of(node)]


def main():
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {habit}"
        for folder in ("walsh_scrapy", "spiders", "tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, habit in find_habits(path.read_text("utf-8"))
    ]
    for line in lines:
        print(line)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
