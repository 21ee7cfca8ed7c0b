"""The manifest for Kubernetes: a schema accepts it, and its command crawls until SIGTERM."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.docs.test_commands import check_call
from tests.docs.test_deployment import FILES, IMAGE, of_image
from walsh_scrapy import __version__

MANIFEST = yaml.safe_load((FILES / "kubernetes.yaml").read_text("utf-8"))
SCHEMA = json.loads(Path(__file__).with_name("kubernetes.schema.json").read_text("utf-8"))
POD = MANIFEST["spec"]["template"]["spec"]
(CRAWL,) = POD["containers"]
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


def test_the_schema_accepts_the_manifest():
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(MANIFEST)


def test_the_pod_runs_the_crawl_of_the_image():
    assert CRAWL["image"] == f"{IMAGE}:{__version__}"
    assert set(CRAWL["args"]) > set(of_image())
    url = "WALSH_STATE_URL=$(WALSH_STATE_URL)"  # Kubernetes knows the variable by the Secret
    assert url in CRAWL["args"]
    check_call([word.replace(url, "WALSH_STATE_URL=sqlite:////x") for word in CRAWL["args"]])


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
