"""The manifest for Kubernetes: a schema accepts it, and its command crawls until SIGTERM."""

import contextlib
import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.docs.test_commands import check_call, command_lines
from tests.docs.test_deployment import FILES, of_image, unit
from tests.helpers import ROOT
from walsh_scrapy import __version__

MANIFEST = yaml.safe_load((FILES / "kubernetes.yaml").read_text("utf-8"))
SCHEMA = json.loads(Path(__file__).with_name("kubernetes.schema.json").read_text("utf-8"))
POD = MANIFEST["spec"]["template"]["spec"]
(CRAWL,) = POD["containers"]
LINES = [line for _, line in command_lines() if line.startswith("kubectl ")]
#: Stands for a program in a container: call LAST goes on until SIGTERM, and then ends slowly.
STAND_IN = f"""#!{sys.executable} -SI
import os, signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
container, call = os.getppid(), " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
with open("calls", "a+") as calls:
    print(call, file=calls, flush=True)
    calls.seek(0)
    number = len(calls.readlines())
print(call, flush=True)
if number == int(os.environ["LAST"]):
    signal.sigwait([signal.SIGTERM])
    subprocess.run([sys.executable, "-SIc", ""])
    print("ends in order" if os.getppid() == container else "is left alone")
"""


def changed(manifest, path, value):
    """Return a copy of the manifest with another value at a path; None removes what is there."""
    manifest = copy.deepcopy(manifest)
    *parents, last = path.split()
    part = manifest
    for key in parents:
        part = part[int(key) if key.isdecimal() else key]
    part[last] = value
    if value is None:
        del part[last]
    return manifest


def test_the_schema_accepts_the_manifest_and_no_wrong_key_or_type():
    Draft202012Validator.check_schema(SCHEMA)
    schema = Draft202012Validator(SCHEMA)
    schema.validate(MANIFEST)
    crawl = "spec template spec containers 0"
    for path, value in (
        ("spec replica", 3),
        ("spec replicas", "3"),
        ("spec selector", None),
        ("spec template spec terminationGracePeriodSeconds", "90s"),
        ("spec template spec securityContext readOnlyRootFilesystem", True),
        (f"{crawl} arg", []),
        (f"{crawl} command", "sh"),
        (f"{crawl} envFrom", {"secretRef": {"name": "walsh-state"}}),
        (f"{crawl} resources limits memory", ["1Gi"]),
        (f"{crawl} securityContext capabilities drop", "ALL"),
        (f"{crawl} volumeMounts 0 mountPath", None),
    ):
        assert not schema.is_valid(changed(MANIFEST, path, value)), path


def test_the_pod_is_one_of_the_image_and_has_no_privilege():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert CRAWL["image"] == f"{project['name']}:{__version__}"
    spec = MANIFEST["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert {each["name"] for each in CRAWL["volumeMounts"]} == {
        each["name"] for each in POD["volumes"]
    }
    assert POD["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert CRAWL["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    seconds = int(unit("walsh@.service")["Service"]["TimeoutStopSec"])
    assert POD["terminationGracePeriodSeconds"] == seconds
    assert not re.search(r"\$[$(]", "".join(CRAWL["command"])), "Kubernetes would replace it"


def test_the_pod_runs_the_crawl_of_the_image():
    assert set(CRAWL["args"]) > set(of_image())
    url = "WALSH_STATE_URL=$(WALSH_STATE_URL)"  # Kubernetes knows the variable by the Secret
    assert url in CRAWL["args"]
    check_call([word.replace(url, "WALSH_STATE_URL=sqlite:////x") for word in CRAWL["args"]])


@pytest.mark.parametrize("line", LINES)
def test_a_call_of_kubectl_is_about_what_the_manifest_names(line):
    _, *words = shlex.split(line)
    names = [word for word in words if not word.startswith("-")]
    options = dict(word.split("=", 1) for word in words if word.startswith("--"))
    if names[0] == "apply":
        assert words == ["apply", "-f", "docs/deployment/kubernetes.yaml"]
    elif names[0] == "scale":
        assert names[1] == f"deployment/{MANIFEST['metadata']['name']}"
        assert int(options["--replicas"]) > MANIFEST["spec"]["replicas"]
    elif "configmap" in names:
        (volume,) = POD["volumes"]
        assert names == ["create", "configmap", volume["configMap"]["name"]]
        (mount,) = CRAWL["volumeMounts"]
        file = f"{mount['mountPath']}/{options['--from-file']}"
        assert f"sources={file}" in CRAWL["args"]
    else:
        (given,) = CRAWL["envFrom"]
        assert names == ["create", "secret", "generic", given["secretRef"]["name"]]
        assert options == {"--from-env-file": "state.env"}


@pytest.fixture
def container(tmp_path):
    """Return a function that starts the command of the pod with other programs in its PATH."""
    started = []

    def start(last=0, **programs):
        for name, text in programs.items():
            (tmp_path / name).write_text(text, "utf-8")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        process = subprocess.Popen(
            [*CRAWL["command"], "crawl", "feeds"],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "LAST": str(last)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("last", [3, 4], ids=["in a crawl", "in a pause"])
def test_a_container_crawls_again_until_sigterm_and_ends_in_order(container, last):
    process = container(last, scrapy=STAND_IN, sleep=STAND_IN)
    expected = ["scrapy crawl feeds\n", "sleep 600\n"] * 2
    assert [process.stdout.readline() for _ in range(last)] == expected[:last]
    process.terminate()
    assert process.wait(timeout=60) == 0
    assert process.stdout.readlines() == ["ends in order\n"]


def test_a_crawl_that_fails_ends_the_container(container):
    assert container(scrapy="#!/bin/sh\nexit 3\n").wait(timeout=60) == 3
