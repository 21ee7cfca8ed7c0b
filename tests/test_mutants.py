"""The mutants of `python -m benchmarks.mutants` fit the code, so none is the crawler itself."""

import pytest

from benchmarks.mutants.mutant import CONTROL, ROOT, Mutant, Patch, PatchError
from benchmarks.mutants.patches import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_patch_applies_once_and_the_module_compiles(mutant):
    changed = mutant.sources()
    assert changed.keys() == {patch.module for patch in mutant.patches}
    for module, source in changed.items():
        assert source != (ROOT / module).read_text("utf-8")


def test_there_are_enough_of_them_and_each_rule_is_broken():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= 40
    assert len({*names, CONTROL.name}) == len(names) + 1
    assert {mutant.rule for mutant in MUTANTS} == {f"R{number}" for number in range(1, 10)}


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (Patch("walsh_scrapy/policy/pacing.py", "spacing", "no such text", ""), "0 times"),
        (Patch("walsh_scrapy/policy/pacing.py", "after", "times", ""), "not once"),
        (Patch("walsh_scrapy/policy/pacing.py", "nobody", "", ""), "has no nobody"),
        (Patch("walsh_scrapy/policy/pacing.py", "spacing", "return max", "return ("), "compile"),
        (Patch("walsh_scrapy/nothing.py", "f", "", ""), "No such file"),
        (Patch("walsh_scrapy/policy/audit/pauses.py", "f", "", ""), "belongs to the judges"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.place,
)
def test_a_patch_that_does_not_fit_is_named_with_the_reason(patch, why):
    with pytest.raises(PatchError, match=why) as caught:
        Mutant("broken", "R4", "", (patch,)).sources()
    assert str(caught.value).startswith("broken: ")
