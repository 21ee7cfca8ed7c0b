"""The clock of the server: measured as an offset, and anew where that may have changed."""

from types import SimpleNamespace

import pytest

from walsh_scrapy.state import serverclock
from walsh_scrapy.state.serverclock import MOST_AGE, MOST_SLEW, ServerClock

TRUE = 1_000_000.0  #: the server's time when our monotonic clock is 0


class Machine:
    """Both clocks of a machine, and a server that takes 0.2 s to answer."""

    def __init__(self):
        self.monotonic_now = self.wall_now = 500.0
        self.asked = 0
        self.set = 0.0

    def pass_by(self, seconds):
        self.monotonic_now += seconds
        self.wall_now += seconds

    def ask(self):
        self.asked += 1
        self.pass_by(0.1)
        told = TRUE + self.monotonic_now + self.set
        self.pass_by(0.1)
        return told


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    clocks = SimpleNamespace(monotonic=lambda: machine.monotonic_now, time=lambda: machine.wall_now)
    monkeypatch.setattr(serverclock, "time", clocks)
    return machine


def test_the_server_is_asked_once_a_second(machine):
    clock = ServerClock(machine.ask)
    for number in range(100):
        assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)
        assert clock.reckoned() == pytest.approx(TRUE + machine.monotonic_now)
        assert machine.asked == 1 + number // 50
        machine.pass_by(MOST_AGE / 49.5)


def test_a_server_whose_clock_is_set_is_noticed_within_a_second(machine):
    clock = ServerClock(machine.ask)
    clock.now()
    machine.set = -30.0
    machine.pass_by(MOST_AGE + 0.001)
    assert clock.now() == pytest.approx(TRUE - 30.0 + machine.monotonic_now)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0, 2 * MOST_SLEW])
def test_our_own_time_of_day_changes_nothing(machine, seconds):
    """Nor does a machine that was suspended, whose monotonic clock stood still."""
    clock = ServerClock(machine.ask)
    clock.now()
    machine.wall_now += seconds
    assert clock.reckoned() == pytest.approx(TRUE + machine.monotonic_now)
    assert clock.now() == pytest.approx(TRUE + machine.monotonic_now)
    assert machine.asked == 2, "it may have been suspended, so the server was asked"
    clock.now()
    assert machine.asked == 2
