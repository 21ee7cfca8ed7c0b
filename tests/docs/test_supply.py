"""What the project is installed from and built into: pinned, hashed, the same bytes each time."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
GROUPS = PROJECT["dependency-groups"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
RUN = [*PROJECT["project"]["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]
ASKED = {
    "requirements.txt": [
        *RUN,
        *GROUPS["test"],
        *GROUPS["check"],
        *GROUPS["release"],
        *GROUPS["docs"],
    ],
    ".ci/lowest.txt": [*RUN, *GROUPS["test"]],
    ".ci/supply.txt": GROUPS["supply"],
}
PINNED = re.compile(
    r"[a-z0-9-]+==[^ ;]+(?: ; [^\\]+)? \\(?:\n    --hash=sha256:[0-9a-f]{64} \\)*\n.*"
)


@pytest.mark.parametrize("name", ASKED)
def test_every_requirement_is_pinned_with_hashes_and_from_no_place_of_its_own(name):
    text = re.sub(r"^ *#.*\n", "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)
    for each in re.split(r"\n(?! )", text.rstrip("\n")):
        assert PINNED.fullmatch(each), each
    assert "://" not in text


@pytest.mark.parametrize("name", ASKED)
def test_the_pins_are_what_pyproject_asks_for(name):
    lines = re.findall(r"^([a-z].*) \\$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    pins = {pin.name: pin.specifier for pin in map(Requirement, lines)}
    for asked in map(Requirement, ASKED[name]):
        (pin,) = pins[canonicalize_name(asked.name)]
        assert asked.specifier.contains(pin.version), asked


def test_the_lowest_versions_are_the_bounds_of_pyproject():
    lines = re.findall(
        r"^([a-z].*) \\$", (ROOT / ".ci/lowest.txt").read_text("utf-8"), re.MULTILINE
    )
    pins = {pin.name: next(iter(pin.specifier)).version for pin in map(Requirement, lines)}
    for asked in map(Requirement, PROJECT["project"]["dependencies"]):
        lowest = next(each.version for each in asked.specifier if each.operator == ">=")
        assert Version(pins[canonicalize_name(asked.name)]) == Version(lowest), asked


def test_a_wheel_is_the_same_wherever_and_whenever_it_is_built(tmp_path):
    wheels = []
    for place, mode, modified in (("one", 0o644, 1_000_000_000), ("two/2", 0o600, 1_700_000_000)):
        copy = tmp_path / place
        shutil.copytree(
            ROOT / "walsh_scrapy",
            copy / "walsh_scrapy",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        for file in copy.rglob("*.*"):
            file.chmod(mode | file.stat().st_mode & 0o100)
            os.utime(file, (modified, modified))
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
        subprocess.run(command, cwd=copy, check=True, capture_output=True)
        wheels += (copy / "dist").glob("*.whl")
    one, two = wheels
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()
