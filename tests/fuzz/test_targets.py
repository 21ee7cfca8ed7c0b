"""Each target reads its seeds, and some hundred documents made by chance."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import Mutator
from tests.fuzz.target import bodies
from tests.fuzz.targets import TARGETS

#: Documents made of the seeds of each target.
ROUNDS = 100


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found(name):
    target, corpus = TARGETS[name], list(TARGETS[name].seeds)
    mutator = Mutator(target.seeds, Random(name))
    for body in (*corpus, *(mutator.mutated(corpus) for _ in range(ROUNDS))):
        target.check(body)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=300)
@given(data=st.data())
def test_any_document_is_read_or_refused(name, data):
    TARGETS[name].check(data.draw(bodies(TARGETS[name])))


def test_the_gate_draws_the_same_examples_each_time_and_times_none():
    assert settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
