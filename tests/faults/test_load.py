"""What grows with the size: bytes and memory, counted, never times. See benchmarks/load.py."""

import sys

import pytest

from benchmarks.load import measured

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes by /proc")
class TestAUnitTakesAsMuchInTheEndAsAtFirst:
    def test_an_epoch(self):
        short, long = measured("epochs", 300), measured("epochs", 1500)
        # What is read once, such as code, and what a short history still lacks, come on top.
        assert long["bytes written"] < 1.5 * 5 * short["bytes written"]
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
