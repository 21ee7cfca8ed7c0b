"""docs/deployment/walsh.rules.yml: its alerts are about metrics that `walsh status` writes."""

import re
import shutil

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers import ROOT, execute
from walsh_scrapy.tools.status import write_metrics

FILE = ROOT / "docs" / "deployment" / "walsh.rules.yml"
RULES = [
    rule for group in yaml.safe_load(FILE.read_text("utf-8"))["groups"] for rule in group["rules"]
]


@pytest.fixture
def metrics(tmp_path):
    """The file of a project without any value."""
    write_metrics(str(tmp_path / "walsh.prom"), "shop", {})
    return tmp_path / "walsh.prom"


def labels_of(metrics):
    """Return the values of each label by metric."""
    labels = {}
    for family in text_string_to_metric_families(metrics.read_text("utf-8")):
        for sample in family.samples:
            values = labels.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                values.setdefault(name, set()).add(value)
    return labels


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_an_alert_is_about_series_that_are_written(metrics, rule):
    written = labels_of(metrics)
    selectors = re.findall(r"(walsh_\w+)(?:{([^}]*)})?", rule["expr"])
    assert selectors
    for name, matchers in selectors:
        for label, values in re.findall(r'(\w+)=~?"([^"]+)"', matchers):
            assert set(values.split("|")) <= written[name][label]
        assert name in written
    used = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    assert all(label in written[selectors[0][0]] for label in used)
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_promtool_accepts_the_rules(metrics):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not on this machine")
    done = execute("promtool", "check", "rules", FILE)
    assert done.returncode == 0, done.stdout + done.stderr
    done = execute("promtool", "check", "metrics", input=metrics.read_text("utf-8"))
    assert (done.returncode, done.stderr) == (0, "")
