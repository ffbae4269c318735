"""A run can be made again from its ``config.toml`` alone, to the last bit."""

import json
import tomllib

import pytest

RUN = """
model = "mlp-w8"
train_size = 200
batch_size = 30
epochs = 3
threads = 1
seed = 7
"""
METHODS = {
    "self-tuned": "",
    "sgd-sa": '[sgd-sa]\npreset = "paper-text"\n',
    "adamw-sa": "",
    "ssa": "",
    "scheduled-sgd": "",
    "random-rate": "",
}


def records(run):
    """Everything that a run leaves, clock readings and the environment apart."""

    def timeless(text):
        fields = json.loads(text)
        return {key: value for key, value in fields.items() if not key.endswith("_seconds")}

    found = {}
    # Checkpoints and the seal hold clock readings too, or digests of files that do.
    timed = ("checkpoints", "SHA256SUMS")
    for path in sorted(p for p in run.rglob("*") if p.is_file() and not {*timed} & {*p.parts}):
        name = str(path.relative_to(run))
        if path.suffix == ".jsonl":
            found[name] = [timeless(line) for line in path.read_text().splitlines()]
        elif path.name == "result.json":
            found[name] = timeless(path.read_text())
        elif path.name == "config.toml":
            found[name] = {**tomllib.loads(path.read_text()), "environment": None}
        else:
            found[name] = path.read_bytes()
    return found


@pytest.mark.parametrize("method", METHODS)
def test_a_run_from_the_config_of_another(program, place, method):
    first, second, experiment = place / "first", place / "second", place / "experiment.toml"
    experiment.write_text(f'method = "{method}"\n{RUN}{METHODS[method]}')
    assert program("train", experiment, "--out", first).code == 0

    experiment.unlink()
    assert program("train", first / "config.toml", "--out", second).code == 0

    ours, theirs = records(first), records(second)
    assert ours.keys() == theirs.keys() >= {"metrics.jsonl", "result.json", "best.safetensors"}
    for name in ours:
        assert ours[name] == theirs[name], name
    assert len(ours["metrics.jsonl"]) == 3
