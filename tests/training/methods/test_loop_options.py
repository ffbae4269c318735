"""Options of the loop in H are really used, each against what torch makes of it."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, Attribute, EmbeddedTuner, Value, grid
from annealtune.errors import ConfigError
from annealtune.training.data.augmentation import CropFlip, crop_flip
from annealtune.training.data.randomness import Purpose, generator
from annealtune.training.methods.counted_minibatch import CountedMinibatch

RATES = [2.0, 0.3]


def moves_of(session, epochs=1):
    """Train and return every move."""
    moves = []
    for _ in range(epochs):
        moves += [session.method._optimizer.last_step for _ in session.train()]
        session.epoch += 1
    return moves


def trained(session):
    """Train an epoch and return the session; one after the other: dropout's draws are global."""
    moves_of(session)
    return session


def assert_same_bits(session, model):
    weights = session.model.state_dict()
    for name, wanted in model.state_dict().items():
        assert torch.equal(weights[name], wanted), name


# --- Label smoothing ---


class TestLabelSmoothing:
    def test_is_that_of_torch(self, session, by_hand):
        run = session(**{"sgd-sa": {"lr": RATES, "label_smoothing": 0.3}})
        moves = moves_of(run)
        model, batches = by_hand()
        made = SGDSA(model, grid(lr=RATES), epochs=3)
        losses = []
        for inputs, labels in batches:
            closure = lambda: F.cross_entropy(model(inputs), labels, label_smoothing=0.3)  # noqa: B023
            losses.append(made.step(closure).item())
        assert_same_bits(run, model)
        assert [info.loss for info in moves] == losses

    def test_every_forward_of_a_step_has_the_value_of_its_setting(self, session, monkeypatch):
        used, real = [], CountedMinibatch._forward

        def forward(self, images, label_smoothing):
            used.append(label_smoothing)
            return real(self, images, label_smoothing)

        monkeypatch.setattr(CountedMinibatch, "_forward", forward)
        run = session(**{"sgd-sa": {"lr": RATES, "label_smoothing": [0.0, 0.1, 0.4]}})
        picked = [info.setting["label_smoothing"] for info in moves_of(run, 3)]
        assert used == [value for value in picked for _ in range(2)]
        assert len(set(picked)) == 3

    def test_evaluation_knows_nothing_of_it(self, session):
        run = session(**{"sgd-sa": {"lr": RATES, "label_smoothing": 0.9}})
        moves_of(run)
        run.model.eval()
        with torch.no_grad():
            ((inputs, labels),) = run.validation_batches
            plain = F.cross_entropy(run.model(inputs), labels).item()
        _, validation = run.scores(lambda: None)
        assert validation.loss == pytest.approx(plain, rel=1e-6)


# --- Dropout ---


class TestDropout:
    def test_every_forward_of_a_step_has_the_rate_of_its_setting(self, session):
        run = session(**{"sgd-sa": {"lr": [20.0, 0.3], "dropout": [0.0, 0.4, 0.7]}})
        used = []
        layer = run.model.classifier[1]
        layer.register_forward_pre_hook(lambda module, _: used.append(module.p))
        picked = [info.setting["dropout"] for info in moves_of(run, 3)]
        assert used == [value for value in picked for _ in range(2)]
        assert len(set(picked)) == 3

    def test_all_kinds_of_dropout_layers(self, tiny, session, place, monkeypatch):
        (place / "dropping.py").write_text(
            "from torch import nn\n"
            "def net(*, channels, image_size, classes):\n"
            "    return nn.Sequential(nn.Dropout2d(0.1), nn.Flatten(), nn.AlphaDropout(0.2),\n"
            "                         nn.Linear(64, classes), nn.Dropout(0.3))\n"
        )
        monkeypatch.syspath_prepend(str(place))
        run = session(model="dropping:net", **{"sgd-sa": {"dropout": [0.15]}})
        assert [run.model[place].p for place in (0, 2, 4)] == [0.15] * 3

    def test_a_model_without_any(self, session):
        with pytest.raises(ConfigError, match=r"sgd-sa\.dropout: the model must have dropout"):
            session(model="resnet18-w16", **{"sgd-sa": {"dropout": [0.5]}})


# --- Clipping ---


def norm_of(model):
    return math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))


class TestClipNorm:
    @pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
    def test_the_gradient_of_a_step_has_at_most_that_norm(self, session, precision):
        block = {"lr": RATES, "clip_norm": [0.05, 0.2, 1000.0]}
        run = session(precision=precision, **{"sgd-sa": block})
        seen, last = set(), None
        for _ in range(3):
            for _ in run.train():
                info = run.method._optimizer.last_step
                if info is last:
                    continue  # a step that the scaler skipped
                last = info
                seen.add(info.setting["clip_norm"])
                if info.setting["clip_norm"] < 1:  # this net's gradients are larger
                    assert norm_of(run.model) == pytest.approx(info.setting["clip_norm"], rel=1e-3)
                else:
                    assert norm_of(run.model) > 0.2
            run.epoch += 1
        assert len(seen) == 3

    def test_is_that_of_torch(self, session, by_hand):
        run = session(**{"sgd-sa": {"lr": RATES, "clip_norm": [0.3]}})
        moves_of(run)
        model, batches = by_hand()
        made = EmbeddedTuner(
            torch.optim.SGD(model.parameters(), lr=2.0),
            model=model,
            neighborhood=grid(lr=RATES),
            epochs=3,
        )
        for inputs, labels in batches:

            def closure(inputs=inputs, labels=labels):
                made.zero_grad()
                loss = F.cross_entropy(model(inputs), labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.3)
                return loss

            made.step(closure)
        assert_same_bits(run, model)

    def test_a_norm_that_is_never_reached_changes_nothing(self, session):
        runs = [
            trained(session(**{"sgd-sa": {"lr": RATES, **clip}}))
            for clip in ({}, {"clip_norm": 1e9})
        ]
        assert_same_bits(runs[0], runs[1].model)


# --- Augmentation ---


class TestAugmentStrength:
    def test_every_minibatch_has_the_strength_of_its_setting(self, session, by_hand):
        """Made anew from the address of its random numbers and the setting that was picked."""
        block = {"lr": RATES, "augment_strength": [0.0, 0.3, 1.0]}
        run = session(augment="crop-flip", **{"sgd-sa": block})
        seen = []
        run.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
        strengths = [info.setting["augment_strength"] for info in moves_of(run, 3)]
        assert len(set(strengths)) == 3
        expected = []

        def augment(images, source):
            return crop_flip(images, source, strengths[len(expected)])

        _, batches = by_hand(augment=augment)
        for _ in range(3):
            for inputs, _ in batches:
                expected.append(inputs)
        assert len(seen) == 2 * len(expected)
        for step, inputs in enumerate(expected):
            assert torch.equal(seen[2 * step], inputs)
            assert torch.equal(seen[2 * step + 1], inputs), "the same minibatch again"

    def test_full_strength_is_augmentation_as_ever(self, session):
        runs = [
            trained(session(augment="crop-flip", **{"sgd-sa": {"lr": RATES, **strength}}))
            for strength in ({}, {"augment_strength": 1.0})
        ]
        assert_same_bits(runs[0], runs[1].model)

    def test_the_stream_is_by_address(self):
        images = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
        first, again = (
            CropFlip(0.5)(images, generator(0, Purpose.AUGMENTATION, 1, 2)) for _ in range(2)
        )
        assert torch.equal(first, again)


# --- All of them together, and what they begin with ---


def test_before_the_first_move_the_values_are_those_of_the_first_setting(session):
    block = {
        "label_smoothing": [0.2, 0.1],
        "dropout": [0.6, 0.1],
        "clip_norm": [3.0, 1.0],
        "augment_strength": [0.5, 1.0],
    }
    run = session(augment="crop-flip", **{"sgd-sa": block})
    assert run.loop.label_smoothing.value == 0.2
    assert run.loop.clip_norm.value == 3.0
    assert run.model.classifier[1].p == 0.6
    assert run.train_batches.augment.strength == 0.5


def test_a_rejected_move_puts_them_back(session):
    """So says the library; here it is seen through a run."""
    run = session(**{"sgd-sa": {"lr": [1e30, 0.1], "label_smoothing": [0.0, 0.3]}})
    kept, rejected = 0.0, 0
    for _ in range(3):
        for _ in run.train():
            info = run.method._optimizer.last_step
            kept = info.setting["label_smoothing"] if info.accepted else kept
            rejected += not info.accepted
            assert run.loop.label_smoothing.value == kept
        run.epoch += 1
    assert rejected > 2


def test_the_ablation_takes_the_same_h(session, by_hand):
    block = {"lr": RATES, "dropout": [0.1, 0.5], "label_smoothing": [0.0, 0.2]}
    run = session(method="random-rate", **{"random-rate": block})
    moves = moves_of(run)
    model, batches = by_hand()
    smoothing = Value(0.0)
    loop = {"label_smoothing": smoothing, "dropout": Attribute("p", model.classifier[1])}
    ordered = {name: block[name] for name in ("lr", "label_smoothing", "dropout")}
    made = SGDSA(model, grid(**ordered), temperature=math.inf, loop=loop)
    for inputs, labels in batches:
        made.step(
            lambda: F.cross_entropy(model(inputs), labels, label_smoothing=smoothing.value)  # noqa: B023
        )
    assert all(info.accepted for info in moves)
    assert_same_bits(run, model)


def test_moves_are_recorded_with_all_their_options(complete, lines_of):
    block = {"lr": RATES, "dropout": [0.1, 0.5], "clip_norm": [1.0]}
    directory = complete(epochs=1, **{"sgd-sa": block})
    (epoch,) = lines_of(directory / "moves.jsonl")
    assert all(set(line["setting"]) == {"lr", "dropout", "clip_norm"} for line in epoch["settings"])


# --- Parts of the model with a rate of their own ---


class TestScales:
    @pytest.mark.parametrize("method", ["sgd-sa", "random-rate"])
    def test_one_step_by_hand(self, session, by_hand, method):
        scales = {"classifier": 0.25, "features.0": 0.0, "features.4": 4.0}
        run = session(method=method, **{method: {"lr": [0.5], "scales": scales}})
        next(run.train())
        model, batches = by_hand()
        inputs, labels = next(iter(batches))
        F.cross_entropy(model(inputs), labels).backward()
        found = dict(run.model.named_parameters())
        for name, p in model.named_parameters():
            scale = next((s for start, s in scales.items() if name.startswith(f"{start}.")), 1.0)
            moved = p.detach().add(p.grad, alpha=-0.5 * scale)
            assert torch.equal(found[name], moved), name
            assert torch.equal(found[name], p) == (scale == 0.0), name

    def test_a_scale_of_one_changes_nothing_with_any_preset(self, session):
        for preset in ({}, {"preset": "paper-text"}, {"preset": "paper-code"}):
            moves, runs = [], []
            for scales in ({}, {"scales": {"classifier": 1.0}}):
                runs.append(session(**{"sgd-sa": {"lr": [5.0, 0.5], **preset, **scales}}))
                moves.append(moves_of(runs[-1], 2))
            assert moves[0] == moves[1]
            assert_same_bits(runs[0], runs[1].model)

    def test_all_of_the_model_may_be_scaled(self, session):
        run = session(**{"sgd-sa": {"lr": [0.5], "scales": {"features": 1.0, "classifier": 2.0}}})
        names = [group["name"] for group in run.method._optimizer.param_groups]
        assert names == ["features", "classifier"]

    def test_a_number_is_a_part_of_a_name(self, session):
        """features.1 is not the start of features.10."""
        run = session(**{"sgd-sa": {"lr": [0.5], "scales": {"features.1": 2.0}}})
        others, scaled = run.method._optimizer.param_groups
        assert [p.shape for p in scaled["params"]] == [(2,), (2,)], "the first BatchNorm"
        assert len(others["params"]) + 2 == len(list(run.model.parameters()))

    @pytest.mark.parametrize(
        ("start", "told"),
        [
            ("clasifier", "got 'clasifier'; did you mean 'classifier'? The model has features, cl"),
            ("features.99", "The model has features, classifier"),
            ("feat", "got 'feat'"),
            ("", "got ''"),
        ],
    )
    def test_a_name_that_is_none(self, session, start, told):
        with pytest.raises(ConfigError) as refused:
            session(**{"sgd-sa": {"scales": {start: 0.5}}})
        assert str(refused.value).startswith(
            "sgd-sa.scales: must be the start of a parameter's name, "
        )
        assert told in str(refused.value)
