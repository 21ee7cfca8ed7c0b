"""Each target reads its seeds, and some hundred documents made of them by chance."""

from random import Random

import pytest

from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import TARGETS

#: Documents made of the seeds of each target. A long run makes as many in a second.
ROUNDS = 100


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found(name):
    target, corpus = TARGETS[name], list(TARGETS[name].seeds)
    mutator = Mutator(target.seeds, Random(name))
    for body in (*corpus, *(mutator.mutated(corpus) for _ in range(ROUNDS))):
        target.check(body)
