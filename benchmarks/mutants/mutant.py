"""A mutant: a copy of the project in which a few lines of some functions are replaced."""

import ast
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: The files that a mutant needs to crawl, to audit its state, and for its tests.
_PROJECT: Final = (
    "walsh_scrapy", "spiders", "scrapy.cfg", "pyproject.toml", "sources.toml", "tests",
)  # fmt: skip
#: The checks are never mutated, so that a mutant is judged by the original checks.
JUDGES: Final = tuple(f"walsh_scrapy/{name}" for name in ("testing/", "feeds/attest/"))


class PatchError(Exception):
    """A patch does not fit the code any more. The message tells which patch, and why."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Replaces a text in one function or class."""

    module: str  #: its file, from the root of the repository
    place: str  #: the qualified name of the function or class
    old: str  #: occurs exactly once in it
    new: str

    def apply(self, source: str) -> str:
        """Return the source of the module with the new text; raises PatchError."""
        lines = source.splitlines(keepends=True)
        first, last = self._lines(ast.parse(source))
        text = "".join(lines[first:last])
        if (count := text.count(self.old)) != 1:
            raise PatchError(
                f"{self.module}: {self.place} has {self.old!r} {count} times, not once"
            )
        changed = "".join([*lines[:first], text.replace(self.old, self.new), *lines[last:]])
        try:
            compile(changed, self.module, "exec")
        except SyntaxError as error:
            raise PatchError(f"{self.module}: {self.place} would not compile: {error}") from error
        return changed

    def _lines(self, node: ast.AST) -> tuple[int, int]:
        """Return the first line of the place, from 0, and the line after its last."""
        first = last = 0
        for name in self.place.split("."):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            inside = (child for child in ast.iter_child_nodes(node) if isinstance(child, kinds))
            child = next((child for child in inside if child.name == name), None)
            if child is None:
                raise PatchError(f"{self.module} has no {self.place}")
            node, first, last = (
                child,
                child.lineno,
                child.end_lineno or child.lineno,
            )
        return first - 1, last


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug that a crawler could have, and the patches that give it to this crawler."""

    name: str
    rule: str  #: "R1" to "R9"
    what: str  #: the fault, in one line for the table
    patches: tuple[Patch, ...]
    #: Tests for what simulated time does not show: connections, and several processes.
    tests: tuple[str, ...] = ()

    def sources(self, root: Path = ROOT) -> dict[str, str]:
        """Return the changed modules by their files; raises PatchError."""
        changed: dict[str, str] = {}
        for patch in self.patches:
            if patch.module.startswith(JUDGES):
                raise PatchError(f"{self.name}: {patch.module} belongs to the checks")
            try:
                source = changed.get(patch.module) or (root / patch.module).read_text("utf-8")
                changed[patch.module] = patch.apply(source)
            except (OSError, PatchError) as error:
                raise PatchError(f"{self.name}: {error}") from error
        return changed


#: The original crawler. A check that finds faults in it is wrong.
CONTROL: Final = Mutant("control", "", "nothing wrong", ())


def write_project(mutant: Mutant, folder: Path) -> Path:
    """Write the project of a mutant, and return its folder; raises PatchError."""
    project = folder / "project"
    project.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in _PROJECT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, project / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, project / name)
    for module, source in mutant.sources().items():
        (project / module).write_text(source, "utf-8")
    return project
