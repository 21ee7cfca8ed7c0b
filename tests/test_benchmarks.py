"""What benchmarks print: lines for people, and with `--json` one object for programs."""

import json
import sys

import pytest

from benchmarks.report import Figure, Report
from tests.helpers import ROOT, execute

NUMBER = (int, float)
FIGURE = {
    "subject": str,
    "name": str,
    "value": (*NUMBER, type(None)),
    "unit": str,
    "peer": str,
    "peer_value": (*NUMBER, type(None)),
    "ratio": (*NUMBER, type(None)),
    "most": (*NUMBER, type(None)),
    "least": (*NUMBER, type(None)),
    "met": (bool, type(None)),
    "note": str,
}


@pytest.mark.parametrize(
    ("figure", "ratio", "met", "said"),
    [
        (Figure("memory", 90.0, "MiB"), None, None, "memory 90.0 MiB"),
        (Figure("open", 1, most=1), None, True, "open 1 [goal: at most 1]"),
        (Figure("open", 2, most=1), None, False, "open 2 [goal: at most 1; missed]"),
        (Figure("read", 9, least=9), None, True, "read 9 [goal: at least 9]"),
        (Figure("read", 8, least=9), None, False, "read 8 [goal: at least 9; missed]"),
        (
            Figure("exit", -9, least=0, most=0),
            None,
            False,
            "exit -9 [goal: at most 0, at least 0; missed]",
        ),
        (
            Figure("memory", None, "MiB", most=200),
            None,
            False,
            "memory unknown [goal: at most 200; missed]",
        ),
        (
            Figure("CPU", 6.0, "ms", peer="Scrapy", peer_value=4.0),
            1.5,
            None,
            "CPU 6.00 ms, 1.50 times Scrapy (4.00 ms)",
        ),
        (
            Figure("CPU", 6.0, "ms", peer="Scrapy", peer_value=12.0, most=1.0),
            0.5,
            True,
            "CPU 6.00 ms, 0.50 times Scrapy (12.0 ms) [goal: at most 1.00]",
        ),
        (
            Figure("CPU", 0.5, "s", peer="Scrapy", peer_value=0.4, most=1.0),
            1.25,
            False,
            "CPU 0.50 s, 1.25 times Scrapy (0.40 s) [goal: at most 1.00; missed]",
        ),
        (
            Figure("time", 2500.0, "s", peer="bound", peer_value=0.0, most=1.0),
            None,
            False,
            "time 2,500 s, unknown times bound (0.00 s) [goal: at most 1.00; missed]",
        ),
    ],
)
def test_a_goal_is_for_the_value_or_for_its_ratio_to_the_peer(figure, ratio, met, said):
    assert (figure.ratio, figure.met, str(figure)) == (ratio, met, said)


def called(*words):
    done = execute(sys.executable, "-m", *words, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done


def checked(text):
    """Return an object after a check of its shape."""
    found = json.loads(text)
    assert list(found) == [
        "benchmark",
        "arguments",
        "began",
        "seconds",
        "machine",
        "figures",
        "met",
    ]
    machine = found["machine"]
    assert list(machine) == ["cores", "cpu", "python", "load"]
    assert [len(machine["load"][when]) for when in ("before", "after")] == [3, 3]
    assert machine["cores"] >= 1
    assert machine["cpu"]
    for figure in found["figures"]:
        assert figure.keys() == FIGURE.keys()
        for name, kind in FIGURE.items():
            assert isinstance(figure[name], kind), name
    goals = [figure["met"] for figure in found["figures"] if figure["met"] is not None]
    assert found["met"] is (all(goals) if goals else None)
    return found


def test_a_benchmark_prints_one_object_and_its_lines_beside_it():
    done = called("benchmarks.signing", "--json", "10")
    found = checked(done.stdout)
    assert (found["benchmark"], found["arguments"]) == ("signing", ["10"])
    subjects = [figure["subject"] for figure in found["figures"]]
    assert subjects == ["a signed request, dictionary", "a signed request, string"]
    assert {(figure["unit"], figure["most"]) for figure in found["figures"]} == {("ms", 0.5)}
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == subjects


def test_a_benchmark_with_a_peer_names_it(capsys):
    report = Report("overhead", ["1"], as_json=True)
    report.add("feeds", Figure("CPU", 6.0, "ms", peer="plain Scrapy", peer_value=4.0, most=1.0))
    report.add_peer("plain Scrapy", Figure("CPU", 4.0, "ms", most=1.0))
    report.end()
    found = checked(capsys.readouterr().out)
    ours, theirs = found["figures"]
    assert (ours["subject"], ours["peer"], ours["ratio"]) == ("feeds", "plain Scrapy", 1.5)
    assert (ours["met"], theirs["met"], found["met"]) == (False, None, False)


def test_a_benchmark_prints_lines_for_people():
    *lines, last = called("benchmarks.signing", "10").stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "a signed request, dictionary",
        "a signed request, string",
    ]
    assert last.startswith("load average: ")


def test_every_benchmark_reports_what_it_measures():
    files = set(ROOT.glob("benchmarks/*.py")) - {ROOT / "benchmarks" / "report.py"}
    assert [file.name for file in files if "print(" in file.read_text("utf-8")] == []
