"""The methods, each against something known."""

import math

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, StochasticSA, grid
from annealtune.errors import NonFiniteLossError
from annealtune.training import run
from annealtune.training.config import MethodName
from annealtune.training.progress import Progress

METHODS = MethodName.__args__


class Watching(Progress):
    """Keeps every move of a run."""

    def __init__(self):
        self.moves = []

    def step(self, session, loss):
        self.moves.append(session.method._optimizer.last_step)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_two_epochs(complete, lines_of, weights_of, session, method):
    directory = complete(method=method, epochs=2)
    assert [line["step"] for line in lines_of(directory / "metrics.jsonl")] == [6, 12]
    before = session(method=method).model.state_dict()
    after = weights_of(directory)
    assert any(not torch.equal(before[name], after[name]) for name in before)


# --- SGD-SA and SSA through a run are the optimizers themselves ---


def by_the_book(by_hand, optimizer, epochs=3, objective="loss"):
    """Train as a reader of the documentation would, without annealtune.training's loop."""
    model, batches = by_hand()
    made = optimizer(model)
    for _ in range(epochs):
        model.train()
        for inputs, labels in batches:

            def closure(inputs=inputs, labels=labels):
                scores = model(inputs)
                if objective == "error":
                    return (scores.argmax(1) != labels).float().mean()
                return F.cross_entropy(scores, labels)

            made.step(closure)
        made.cool()
    return model.state_dict()


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


RATES = [2.0, 0.5, 0.05]


@pytest.mark.parametrize("preset", ["paper-text", "paper-code"])
def test_presets_are_those_of_the_optimizer(complete, weights_of, by_hand, preset):
    directory = complete(**{"sgd-sa": {"lr": RATES, "preset": preset}})
    expected = by_the_book(
        by_hand, lambda model: SGDSA(model, grid(lr=RATES), preset=preset, batch_size=30)
    )
    assert_same_bits(weights_of(directory), expected)


@pytest.mark.parametrize("objective", ["loss", "error"])
def test_ssa_is_the_optimizer(complete, weights_of, lines_of, by_hand, objective):
    directory = complete(method="ssa", ssa={"objective": objective, "temperature": 0.01})
    expected = by_the_book(
        by_hand, lambda model: StochasticSA(model, temperature=0.01), objective=objective
    )
    assert_same_bits(weights_of(directory), expected)
    # Whatever is minimized, the loss is what is recorded.
    assert all(1 < line["train_loss"] < 4 for line in lines_of(directory / "metrics.jsonl"))


def test_the_radius_of_ssa(complete, lines_of):
    shrinking = {"radius": 0.5, "preset": "paper-code"}
    directory = complete(method="ssa", ssa=shrinking)
    radii = [line["radius"] for line in lines_of(directory / "metrics.jsonl")]
    assert radii[0] == 0.5
    assert set(radii) <= {0.5, 0.05, 0.005}
    assert len(set(radii)) > 1
    kept = {"radius": 0.5, "preset": "paper-text"}
    directory = complete(method="ssa", ssa=kept)
    assert {line["radius"] for line in lines_of(directory / "metrics.jsonl")} == {0.5}


class TestRandomRate:
    def test_keeps_every_finite_move_and_picks_as_sgd_sa_does(self, tiny, place, lines_of):
        rates = [50.0, 0.5, 1e38]
        picks = {}
        for method in ("random-rate", "sgd-sa"):
            watching = Watching()
            config = tiny(method=method, decision_seed=2, **{method: {"lr": rates}})
            run(config, place / method, progress=watching)
            picks[method] = [info.setting["lr"] for info in watching.moves]
            if method == "random-rate":
                assert all(info.accepted == math.isfinite(info.new_loss) for info in watching.moves)
                assert any(info.worsening > 0 for info in watching.moves)
                assert not all(info.accepted for info in watching.moves)
        assert picks["random-rate"] == picks["sgd-sa"]
        assert len(set(picks["sgd-sa"])) == 3


def test_a_plain_step_is_torchs(complete, weights_of, by_hand):
    class Plain:
        def __init__(self, model):
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

        def step(self, closure):
            self.optimizer.zero_grad()
            closure().backward()
            self.optimizer.step()

        def cool(self):
            pass

    directory = complete(method="sgd", sgd={"lr": 0.2})
    assert_same_bits(weights_of(directory), by_the_book(by_hand, Plain))


# --- What a step costs, counted ---


@pytest.mark.parametrize(
    ("method", "options", "forwards", "backwards"),
    [
        ("sgd", {}, 1, 1),
        ("adamw", {}, 1, 1),
        ("sgd-sa", {}, 2, 1),
        ("adamw-sa", {}, 2, 1),
        ("sgd-sa", {"preset": "paper-text"}, 2, 1),
        ("sgd-sa", {"preset": "paper-code"}, 3, 1),
        ("random-rate", {}, 2, 1),
        ("ssa", {}, 3, 0),
        ("ssa", {"objective": "error"}, 3, 0),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_forwards_and_backwards_are_the_truth(
    session, counted, method, options, forwards, backwards, precision
):
    session = session(method=method, precision=precision, **{method: options})
    found = counted(session)
    skipped = 0
    for _ in session.train():
        skipped += (
            method in ("sgd-sa", "adamw-sa", "random-rate")
            and session.method._optimizer.last_step is None
        )
    assert session.forwards == found["forwards"]
    assert session.backwards == found["backwards"] == 6 * backwards
    if not skipped:
        assert session.forwards == 6 * forwards


# --- Divergence ---


@pytest.mark.parametrize("method", ["sgd", "adamw"])
def test_divergence_is_named(tiny, place, method):
    options = {"lr": 1e30}
    config = tiny(method=method, model="mlp", epochs=5, **{method: options})
    with pytest.raises(NonFiniteLossError, match=r"must be finite, got (nan|inf)"):
        run(config, place)
