"""What grows with the size: bytes and memory, counted, never times. See benchmarks/load.py."""

import json
import shutil
import sys

import pytest

from annealtune.studies.records import read_lone_run
from annealtune.studies.report.figures.curves import MOST_SHOWN, shown_records
from annealtune.studies.report.run_page import write_run_report
from benchmarks.load import TINY, measured

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    from annealtune.training.config import from_values
    from annealtune.training.runs import run

    path = tmp_path_factory.mktemp("short") / "run"
    run(from_values({**TINY, "epochs": 20, "method": "sgd-sa"}, "test"), path)
    return path


@pytest.fixture
def long_run(short_run, tmp_path, unseal):
    """Makes a run of many epochs out of the records of a short one."""

    def make(epochs):
        path = tmp_path / f"run-{epochs}"
        shutil.copytree(short_run, path)
        for name in ("metrics.jsonl", "moves.jsonl"):
            records = [json.loads(line) for line in (short_run / name).read_text().splitlines()]
            with (path / name).open("w") as file:
                for epoch in range(1, epochs + 1):
                    record = {**records[(epoch - 1) % len(records)], "epoch": epoch}
                    file.write(json.dumps(record) + "\n")
        unseal(path)
        return path

    return make


def page_of(path):
    return write_run_report(read_lone_run(path), figures=False).read_text()


def test_the_page_of_a_run_does_not_grow_with_its_epochs(long_run):
    short, long = page_of(long_run(1000)), page_of(long_run(20_000))
    assert len(long) < 1.3 * len(short)
    assert "1000 of 1000 epochs" in short


@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 2001, 100_000, 131_073])
def test_the_epochs_that_are_shown(count):
    epochs = range(1, count + 1)
    shown = list(shown_records(epochs))
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1]) == (1, count)
    assert len(shown) <= MOST_SHOWN + 2
    # Whatever the lengths of two runs, the shorter one has the epochs of the longer one.
    longer = set(shown_records(range(1, 4 * count + 1)))
    assert longer & set(epochs) <= set(shown) | {1}


@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes by /proc")
class TestAUnitTakesAsMuchInTheEndAsAtFirst:
    def test_an_epoch(self):
        short, long = measured("epochs", 300), measured("epochs", 1500)
        # What is read once, such as code, and what a short history still lacks, come on top.
        assert long["bytes written"] < 1.3 * 5 * short["bytes written"]
        assert long["bytes read"] < 5 * short["bytes read"]
        assert long["bytes of a checkpoint"] < 2 * short["bytes of a checkpoint"]
        assert long["bytes to run"] < short["bytes to run"] + 50e6

    def test_a_run_of_a_study(self):
        few, many = measured("study", 20), measured("study", 80)
        assert many["bytes on disk"] < 1.1 * 4 * few["bytes on disk"]
        assert many["bytes of the page"] < 4 * few["bytes of the page"]
        assert many["bytes to run"] < few["bytes to run"] + 50e6

    def test_a_setting(self):
        few, many = measured("settings", 1000), measured("settings", 10_000)
        assert many["bytes of the state"] < 1.1 * 10 * few["bytes of the state"]
        assert many["bytes to construct"] < 10 * few["bytes to construct"]

    def test_a_parameter(self):
        """A copy for the step that can be undone; in a race one for each arm, and the start."""
        found = measured("parameters", 20_000_000)
        model = found["bytes of the model"]
        assert found["bytes for Algorithm 2"] < 1.5 * model
        assert found["bytes for a race of four"] < 6.5 * model
