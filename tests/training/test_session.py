"""What a run writes down: every field documented, every number counted again."""

import json
import math
import re
import signal
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch.nn.functional import cross_entropy

from annealtune.training import data, models, run
from annealtune.training.config import MethodName
from annealtune.training.progress import Progress
from annealtune.training.task import Task

METHODS = MethodName.__args__
DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


class Watching(Progress):
    """Keeps every move of a run."""

    def __init__(self):
        self.losses, self.moves = [], []

    def step(self, session, loss):
        self.losses.append(loss)
        self.moves.append(session.method._optimizer.last_step)


def test_every_field_is_documented_and_every_documented_field_is_written(complete, lines_of):
    section = DOCUMENT.read_text().split("## Fields of `metrics.jsonl`")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert len(documented) > 15
    written = set()
    runs = [{"method": method} for method in METHODS]
    runs += [{"method": "self-tuned", "model": "mlp", "batch_size": 1}]  # enough steps for a race
    for changes in runs:
        (record,) = lines_of(complete(epochs=1, **changes) / "metrics.jsonl")
        assert list(record) == [name for name in documented if name in record], "another order"
        written |= record.keys()
    assert written == set(documented)


def test_an_epoch_counted_again(tiny, place, lines_of):
    # One rate ruins the net, one is so large that its loss is not finite.
    options = {"lr": [0.05, 0.5, 20.0, 1e38], "temperature": 0.3}
    watching = Watching()
    run(tiny(epochs=1, **{"sgd-sa": options}), place, progress=watching)
    (record,) = lines_of(place / "metrics.jsonl")
    (moves,) = lines_of(place / "moves.jsonl")
    infos = watching.moves
    assert len(infos) == 6

    finite = [info for info in infos if math.isfinite(info.new_loss)]
    worse = [info for info in finite if info.new_loss > info.loss]
    assert worse
    assert len(finite) < len(infos), "the test needs a loss that is not finite"
    metropolis = [min(1.0, math.exp(-(info.new_loss - info.loss) / 0.3)) for info in worse]
    accepted = [info for info in infos if info.accepted]
    assert record["train_loss"] == pytest.approx(fmean(watching.losses), rel=1e-12)
    assert record["acceptance_rate"] == len(accepted) / 6
    assert record["improvement_rate"] == sum(info.new_loss < info.loss for info in finite) / 6
    assert record["accepted_worsening"] == sum(info.accepted for info in worse)
    assert record["rejected_worsening"] == sum(not info.accepted for info in worse)
    assert record["non_finite"] == 6 - len(finite)
    better = len(finite) - len(worse)
    assert record["accept_probability"] == pytest.approx((sum(metropolis) + better) / 6)
    assert record["worsening_accept_probability"] == pytest.approx(fmean(metropolis))
    assert record["temperature"] == 0.3
    assert record["rate"] == pytest.approx(fmean(info.setting["lr"] for info in accepted))
    assert (record["forwards"], record["backwards"]) == (12, 6)

    tried = Counter(info.setting["lr"] for info in infos)
    kept = Counter(info.setting["lr"] for info in accepted)
    assert moves["epoch"] == 1
    assert {line["setting"]["lr"]: line["tried"] for line in moves["settings"]} == tried
    for line in moves["settings"]:
        assert line["accepted"] == kept[line["setting"]["lr"]]


def test_an_epoch_is_counted_whole_across_a_stop(
    place, complete, lines_of, program, at_call, tiny_flags
):
    """The sums of an epoch in progress are part of a checkpoint."""
    whole = complete(method="ssa", epochs=2)
    flags = ["train", *tiny_flags, "--method", "ssa", "--epochs", 2]
    setup = at_call("annealtune.training.session:CountedMinibatch.forward", 27, signal.SIGTERM)
    assert program(*flags, "--out", "stopped", setup=setup).code == 143
    assert program(*flags, "--out", "stopped", "--resume").code == 0
    assert lines_of(place / "stopped" / "moves.jsonl") == lines_of(whole / "moves.jsonl")


def test_what_is_not_finite_is_null(complete, lines_of):
    path = complete(method="random-rate", epochs=1) / "metrics.jsonl"
    json.loads(path.read_text(), parse_constant=pytest.fail)
    (record,) = lines_of(path)
    assert record["temperature"] is None  # infinite: every finite move is kept


def test_methods_without_moves_write_none(complete, lines_of):
    directory = complete(method="sgd", epochs=2)
    assert not (directory / "moves.jsonl").exists()
    for record in lines_of(directory / "metrics.jsonl"):
        assert record["rate"] == 0.1
        assert "acceptance_rate" not in record
        assert "temperature" not in record


def test_losses_and_accuracies_agree_with_an_evaluation_by_hand(complete, lines_of, newest):
    directory = complete(method="sgd", epochs=1)
    (record,) = lines_of(directory / "metrics.jsonl")
    digits = data.subset(data.load("digits"), 200, seed=0)
    _, held_out = data.split(200, 0.1, seed=0)
    model = models.build("small-cnn-w8", Task.of_images(channels=1, image_size=(8, 8), classes=10))
    model.load_state_dict(torch.load(newest(directory), weights_only=True)["model"])
    inputs = (digits.train_inputs[held_out].float() / 16 - digits.mean[0]) / digits.std[0]
    labels = digits.train_targets[held_out]
    with torch.no_grad():
        scores = model.eval()(inputs)
    assert record["validation_loss"] == pytest.approx(cross_entropy(scores, labels).item())
    assert record["validation_accuracy"] == (scores.argmax(1) == labels).sum().item() / 20
    # 20 images are one minibatch: its mean loss over the number of images.
    assert record["validation_paper_loss"] == pytest.approx(record["validation_loss"] / 20)
