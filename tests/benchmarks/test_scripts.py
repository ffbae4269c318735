"""The scripts train by every method, within the budget, and put out the best look."""

import itertools
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
from benchmarks.scripts.common import METHODS, SCRIPTS, Key, Script, run, script_of
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
    """A line through noisy points; once it is spoiled, the training data are wrong."""

    steps = 300
    spoiled_after = 1000

    def load(self):
        source = torch.Generator().manual_seed(0)
        self.x = torch.randn(600, 4, generator=source)
        self.y = self.x.sum(1, keepdim=True) + 0.3 * torch.randn(600, 1, generator=source)

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
        is_wrong = torch.is_grad_enabled() and self.gradients >= self.spoiled_after
        self.gradients += torch.is_grad_enabled()
        return F.mse_loss(model(x), -y if is_wrong else y)

    def hand_tuned(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1), None


@pytest.fixture(autouse=True)
def _fresh():
    """Accelerate keeps its settings in the process; other tests want others."""
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None:
        for kept in (state.AcceleratorState, state.GradientState, state.PartialState):
            kept._reset_state()


# Every script by ours and its recipe, and one in each kind of loop by every method.
PAIRS = {*itertools.product(SCRIPTS, ("hand-tuned", "self-tuned"))}
PAIRS |= {*itertools.product(("gcn", "huggingface", "autoencoder"), METHODS)}


@pytest.mark.parametrize(("script", "method"), sorted(PAIRS))
def test_every_script_and_every_method(script, method):
    packages = {"huggingface": "transformers", "autoencoder": "lightning"}
    pytest.importorskip(packages.get(script, "torch"))
    skip_without(method)
    record = run(Key(script, method, 3), Made(), STEPS)
    assert "failure" not in record
    assert records.key_of(json.loads(json.dumps(record, allow_nan=False)), Key).seed == 3
    assert record["minibatches"] + record["extra_steps"] <= record["budget"] == STEPS
    assert len(record["looks"]) == STEPS
    assert record["validation"] == min(record["looks"]) < record["looks"][0] + 1e-3
    assert 0 < record["test"] < 1.2 * record["validation"]


@pytest.mark.filterwarnings("ignore:SelfTuner:UserWarning")  # the loss rises
@pytest.mark.parametrize("method", METHODS)
def test_a_method_costs_no_more_than_the_recipe_and_puts_out_its_best_look(method):
    skip_without(method)
    script = Line(Sources())
    record = script.train(method)
    assert script.gradients == record["minibatches"] + record["extra_steps"] <= 300
    assert (record["races"] > 0) == (method in ("self-tuned", "random-arm"))
    assert len(record["looks"]) == 20
    assert record["test"] < 0.9 * record["looks"][0]
    script.spoiled_after = 100
    record = script.train(method)
    assert record["looks"].index(record["validation"]) < 18
    assert record["test"] < record["final_test"]


def test_the_controls():
    held, drawn = (Line(Sources()).train(method) for method in ("adamw-3e-3", "random-arm"))
    assert (held["rate"], held["minibatches"], held["extra_steps"]) == (3e-3, 300, 0)
    assert drawn["reason"] == "drawn blindly"
    rates = {Line(Sources(), seed).train("random-arm")["rate"] for seed in (1, 2, 3, 4)}
    assert len(rates) > 1


def test_the_hand_tuned_one_is_the_plain_loop():
    script = script_of("nanogpt")(Made(), steps=STEPS)
    torch.manual_seed(0)
    model = script.model()
    optimizer = script.adamw(model)
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


def made_record(script, method, seed, test):
    return {**Key(script, method, seed)._asdict(), "test": test, "rate": 0.003}


def test_the_table_has_ratios_and_ranks_of_rivals():
    losses = {"hand-tuned": 2.0, "prodigy": 2.2, "self-tuned": 1.8, "adamw-3e-3": 1.7}
    known = {
        Key("vae", method, seed): made_record("vae", method, seed, loss + 0.1 * seed)
        for method, loss in losses.items()
        for seed in (-1, 1)
    }
    known[Key("vae", "hand-tuned", 5)] = made_record("vae", "hand-tuned", 5, 99.0)  # alone
    known[Key("gcn", "hand-tuned", 0)] = made_record("gcn", "hand-tuned", 0, None)  # broke
    known[Key("gcn", "prodigy", 0)] = {"failure": "OSError: gone"}
    text = command.render(known)
    (row,) = (line for line in text.splitlines() if line.startswith("| vae"))
    assert [cell.strip() for cell in row.split("|")][2:9] == [
        "2",
        "2.000 ± 0.141 (1.000, 2)",
        "2.200 ± 0.141 (1.100, 3)",
        "",
        "1.800 ± 0.141 (0.900, 1)",
        "1.700 ± 0.141 (0.850)",
        "",
    ]
    assert text.count("failed") == 2


def test_what_is_recorded_is_not_run_again_and_the_text_has_the_table(tmp_path, capsys):
    records.append(tmp_path / "scripts.jsonl", made_record("gcn", "hand-tuned", 4, 1.25))
    (tmp_path / "scripts.md").write_text("<!-- tables -->\n<!-- end of tables -->\n")
    before = (tmp_path / "scripts.jsonl").read_bytes()
    options = ["--scripts", "gcn", "--methods", "hand-tuned", "--seeds", "4"]
    command.main([*options, "--results", str(tmp_path)])
    assert (tmp_path / "scripts.jsonl").read_bytes() == before
    for text in (capsys.readouterr().out, (tmp_path / "scripts.md").read_text()):
        assert "| gcn | 1 | 1.250 (1.000, 1) |" in text
