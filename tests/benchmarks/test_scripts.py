"""The scripts train by every method, within the budget, and put out the best look."""

import json
import random
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import records
from benchmarks.quality.tasks.task import Sources
from benchmarks.scripts import __main__ as command
from benchmarks.scripts import table
from benchmarks.scripts.catalogue import SCRIPTS, Key, run, script_of
from benchmarks.scripts.common import METHODS, Keeper, Script, is_look
from tests.benchmarks.line import skip_without

STEPS = 12
pytestmark = [
    pytest.mark.filterwarnings("ignore:SelfTuner. .* too few for a race:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, in frameworks
]


class Made(Sources):
    """A text of made words, noise for images."""

    def read_text(self):
        letters = random.Random(0)
        words = ("".join(letters.choices("abcdefgh", k=letters.randint(1, 6))) for _ in range(1500))
        return " ".join(words)

    def dataset(self, name):
        shape = {"cifar10": (3, 32, 32), "fashion-mnist": (1, 28, 28)}[name]
        source = torch.Generator().manual_seed(0)
        parts = {}
        for part, count in (("train", 400), ("test", 60)):
            pixels = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=source)
            parts |= {f"{part}_inputs": pixels, f"{part}_targets": torch.arange(count) % 10}
        return SimpleNamespace(**parts)


class Line(Script):
    """A line through noisy points."""

    steps = 300

    def load(self):
        source = torch.Generator().manual_seed(0)
        self.x = torch.randn(600, 4, generator=source)
        self.y = self.x.sum(1, keepdim=True) + 0.3 * torch.randn(600, 1, generator=source)
        self.gradients = 0

    def model(self):
        self.gradients = 0
        return nn.Linear(4, 1)

    def minibatch(self):
        rows = torch.randint(200, (16,))
        return self.x[rows], self.y[rows]

    def held_out(self, part):
        rows = slice(200, 400) if part == "validation" else slice(400, 600)
        yield self.x[rows], self.y[rows]

    def loss(self, model, x, y):
        self.gradients += torch.is_grad_enabled()
        return F.mse_loss(model(x), y)

    def hand_tuned(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1), None


class Spoiled(Line):
    """After a third of the run the training data are wrong."""

    def loss(self, model, x, y):
        is_wrong = torch.is_grad_enabled() and self.gradients >= 100
        return super().loss(model, x, -y if is_wrong else y)


@pytest.fixture(autouse=True)
def _fresh():
    """Accelerate keeps its settings in the process; other tests want others."""
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None:
        for kept in (state.AcceleratorState, state.GradientState, state.PartialState):
            kept._reset_state()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_by_every_method(script, method):
    pytest.importorskip(
        {"huggingface": "transformers", "autoencoder": "lightning"}.get(script, "torch")
    )
    skip_without(method)
    record = run(Key(script, method, 3), Made(), STEPS)
    assert "failure" not in record
    assert records.key_of(json.loads(json.dumps(record, allow_nan=False)), Key).seed == 3
    assert record["minibatches"] + record["extra_steps"] <= record["budget"] == STEPS
    assert len(record["looks"]) == STEPS
    assert record["validation"] == min(record["looks"]) < record["looks"][0] + 1e-3
    assert 0 < record["test"] < 1.2 * record["validation"]


@pytest.mark.parametrize("method", METHODS)
def test_no_method_computes_more_gradients_than_the_recipe(method):
    skip_without(method)
    script = Line(Sources())
    record = script.train(method)
    assert script.gradients == record["minibatches"] + record["extra_steps"]
    assert script.gradients <= 300
    assert (record["races"] > 0) == (method == "self-tuned")
    assert record["test"] < 0.9 * record["looks"][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["huggingface", "autoencoder"])
def test_nor_do_frameworks(name):
    script = script_of(name)(Made(), steps=250)
    script.batch_size, script.block_size = 4, 8
    record = script.train("self-tuned")
    assert record["races"] > 0
    assert 230 < record["minibatches"] + record["extra_steps"] <= 250


@pytest.mark.filterwarnings("ignore:SelfTuner:UserWarning")  # the loss rises
@pytest.mark.parametrize("method", METHODS)
def test_the_output_is_the_best_look(method):
    skip_without(method)
    script = Spoiled(Sources())
    record = script.train(method)
    assert record["looks"].index(record["validation"]) < 18
    assert record["test"] < record["final_test"]


def test_the_hand_tuned_one_is_the_plain_loop():
    script = script_of("nanogpt")(Made(), steps=STEPS)
    torch.manual_seed(0)
    model = script.model()
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    for step in range(STEPS):
        torch.manual_seed(step)
        tokens, following = script.minibatch()
        scores = model(tokens)
        F.cross_entropy(scores.view(-1, scores.shape[-1]), following.view(-1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        share = max(0, step - 1) / (STEPS - 1)  # one step of warm-up
        cosine = 0.1 + 0.9 * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * share)).item())
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (0.5 if step == 0 else cosine)
        optimizer.step()
        optimizer.zero_grad()
    assert script.train("hand-tuned")["final_test"] == pytest.approx(script.evaluate(model, "test"))


def test_the_keeper_has_the_weights_of_the_lowest_score():
    model = nn.Linear(1, 1)
    keeper = Keeper(model)
    for score in (3.0, float("nan"), 1.0, 2.0, 1.0):
        nn.init.constant_(model.weight, 10 * score)
        keeper.validate(lambda score=score: score)
    nn.init.constant_(model.weight, 7)
    with keeper.best():
        assert model.weight.item() == 10
    assert model.weight.item() == 7


@pytest.mark.parametrize("planned", [20, 37, 193, 2000])
def test_there_are_twenty_looks_and_the_last_is_at_the_end(planned):
    looks = [step for step in range(1, planned + 1) if is_look(step, planned)]
    assert len(looks) == 20
    assert looks[-1] == planned
    assert max(b - a for a, b in zip([0, *looks], looks, strict=False)) <= planned // 20 + 1


def made_record(script, method, seed, test):
    return {**Key(script, method, seed)._asdict(), "test": test, "rate": 0.003}


class TestTable:
    def test_ratios_and_ranks(self):
        losses = {"hand-tuned": 2.0, "prodigy": 2.2, "self-tuned": 1.8}
        known = {
            Key("vae", method, seed): made_record("vae", method, seed, loss + 0.1 * seed)
            for method, loss in losses.items()
            for seed in (-1, 1)
        }
        known[Key("vae", "hand-tuned", 5)] = made_record("vae", "hand-tuned", 5, 99.0)  # alone
        (row,) = (line for line in table.render(known).splitlines() if line.startswith("| vae"))
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[2:7] == [
            "2",
            "2.000 ± 0.141 (1.000, 2)",
            "2.200 ± 0.141 (1.100, 3)",
            "",
            "1.800 ± 0.141 (0.900, 1)",
        ]

    def test_a_run_that_failed_or_broke(self):
        known = {
            Key("gcn", "hand-tuned", 0): made_record("gcn", "hand-tuned", 0, 1.0),
            Key("gcn", "prodigy", 0): made_record("gcn", "prodigy", 0, None),
            Key("gcn", "self-tuned", 0): {"failure": "OSError: gone"},
        }
        text = table.render(known)
        assert text.count("failed") == 2


class TestCommand:
    def arguments(self, path):
        return [
            "--scripts",
            "gcn",
            "--methods",
            "hand-tuned",
            "--seeds",
            "4",
            "--results",
            str(path),
        ]

    def test_what_is_recorded_is_not_run_again(self, tmp_path, capsys):
        path = tmp_path / "scripts.jsonl"
        records.append(path, made_record("gcn", "hand-tuned", 4, 1.25))
        before = path.read_bytes()
        command.main(self.arguments(path))
        assert path.read_bytes() == before
        assert "1.250 (1.000, 1)" in capsys.readouterr().out

    @pytest.mark.slow
    def test_what_is_missing_is_run_and_recorded(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the command sets
        path = tmp_path / "scripts.jsonl"
        command.main(self.arguments(path))
        (record,) = records.read(path, Key).values()
        assert record["test"] < 1.9  # it starts at log 7
        assert record.keys() >= {"commit", "torch", "cpu", "threads"}
        assert record["threads"] == 1
        assert "gcn" in capsys.readouterr().out

    def test_a_missing_text_is_told(self, tmp_path):
        arguments = ["--scripts", "nanogpt", "--methods", "hand-tuned", "--table"]
        command.main([*arguments, "--results", str(tmp_path / "none.jsonl")])
        with pytest.raises(SystemExit, match="--text"):
            command.main([*arguments[:-1], "--results", str(tmp_path / "none.jsonl")])
