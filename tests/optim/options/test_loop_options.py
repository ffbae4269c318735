"""Options of the training loop in H: picked before the forward, put back by a rejection."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, Attribute, EmbeddedTuner, Value, grid
from annealtune.optim import LoopOption


def smoothed(net, **options):
    """A tuner over rate, label smoothing and dropout, and its closure of a minibatch."""
    smoothing = Value(0.0)
    tuner = SGDSA(
        net,
        grid(lr=[30.0, 0.1], label_smoothing=[0.0, 0.1, 0.3], dropout=[0.0, 0.2, 0.5]),
        loop={"label_smoothing": smoothing, "dropout": Attribute("p", net.drop)},
        **options,
    )
    seen = []

    def closure(x, y):
        def loss():
            seen.append((smoothing.value, net.drop.p))
            return F.cross_entropy(net(x), y, label_smoothing=smoothing.value)

        return loss

    return tuner, smoothing, closure, seen


def test_both_forwards_of_a_step_run_under_its_setting(net, make_batches):
    tuner, _, closure, seen = smoothed(net, temperature=math.inf)
    settings = set()
    for x, y in make_batches(30):
        seen.clear()
        tuner.step(closure(x, y))
        setting = tuner.last_step.setting
        settings.add(setting)
        assert seen == [(setting["label_smoothing"], setting["dropout"])] * 2
    assert len(settings) > 10


def test_the_losses_are_those_of_the_setting(net, batch):
    x, y = batch
    tuner, _, closure, _ = smoothed(net, temperature=math.inf)
    twin, start = copy.deepcopy(net), torch.get_rng_state()
    tuner.step(closure(x, y))
    setting = tuner.last_step.setting
    torch.set_rng_state(start)
    twin.drop.p = setting["dropout"]
    loss = F.cross_entropy(twin(x), y, label_smoothing=setting["label_smoothing"])
    assert loss.item() == tuner.last_step.loss
    loss.backward()
    torch.optim.SGD(twin.parameters(), lr=setting["lr"]).step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))


def test_an_accepted_setting_stays_and_a_rejected_one_goes(net, make_batches):
    tuner, smoothing, closure, _ = smoothed(net, temperature=0.0)
    resting = (0.0, 0.3)
    accepted = set()
    for x, y in make_batches(60, size=4):
        tuner.step(closure(x, y))
        info = tuner.last_step
        accepted.add(info.accepted)
        if info.accepted:
            resting = (info.setting["label_smoothing"], info.setting["dropout"])
        assert (smoothing.value, net.drop.p) == resting
    assert accepted == {True, False}


def test_without_a_closure_the_setting_is_prepared_before_the_forward(make_net, make_batches):
    runs = []
    for explicit in (False, True):
        net = make_net()
        torch.manual_seed(1)
        tuner, smoothing, closure, _ = smoothed(net, temperature=0.01)
        infos = []
        for x, y in make_batches(12):
            if explicit:
                assert tuner.prepare() is tuner.prepare()
                tuner.zero_grad()
                loss = F.cross_entropy(net(x), y, label_smoothing=smoothing.value)
                loss.backward()
                tuner.step(loss=loss.detach(), probe=closure(x, y))
            else:
                tuner.step(closure(x, y))
            infos.append(tuner.last_step)
        runs.append(infos)
    assert runs[0] == runs[1]


def test_a_forward_before_the_setting_is_known_is_an_error(net, loss_of):
    tuner, _, _, _ = smoothed(net)
    loss = loss_of()
    loss.backward()
    with pytest.raises(RuntimeError, match=r"label_smoothing, dropout .* prepare\(\)"):
        tuner.propose(loss)


def test_an_error_in_the_closure_keeps_the_pick_and_its_options(net, batch, loss_of):
    tuner, smoothing, closure, _ = smoothed(net, temperature=math.inf)
    with pytest.raises(ZeroDivisionError):
        tuner.step(lambda: 1 / 0)
    setting = tuner.prepare()
    assert (smoothing.value, net.drop.p) == (setting["label_smoothing"], setting["dropout"])
    tuner.step(closure(*batch))
    assert tuner.last_step.setting == setting


def test_an_error_in_a_write_leaves_all_options_as_they_were(net, loss_of):
    class Broken(Value):
        def write(self, value):
            if value != 0.0:
                raise OSError("no such device")
            super().write(value)

    smoothing = Value(0.0)
    tuner = SGDSA(
        net,
        grid(lr=[0.1], smoothing=[0.2], broken=[1.0]),
        loop={"smoothing": smoothing, "broken": Broken(0.0)},
    )
    with pytest.raises(OSError, match="no such device"):
        tuner.step(loss_of)
    assert smoothing.value == 0.0
    assert tuner.moves.total.tried == 0


@pytest.mark.parametrize("prepared", [False, True])
def test_a_state_taken_between_two_steps_continues_the_run(
    make_net, make_batches, picture, prepared
):
    batches = make_batches(20, size=4)
    net = make_net()
    tuner, _, closure, _ = smoothed(net, temperature=0.01)
    for x, y in batches[:8]:
        tuner.step(closure(x, y))
    if prepared:
        tuner.prepare()
    state = copy.deepcopy((net.state_dict(), tuner.state_dict(), torch.get_rng_state()))
    expected = []
    for x, y in batches[8:]:
        tuner.step(closure(x, y))
        expected.append((tuner.last_step, net.drop.p))
    other = make_net(seed=5)
    resumed, _, other_closure, _ = smoothed(other, temperature=0.01)
    other.load_state_dict(state[0])
    resumed.load_state_dict(state[1])
    torch.set_rng_state(state[2])
    continued = []
    for x, y in batches[8:]:
        resumed.step(other_closure(x, y))
        continued.append((resumed.last_step, other.drop.p))
    assert continued == expected
    assert {info.accepted for info, _ in expected} == {True, False}
    assert picture(other, resumed) == picture(net, tuner)


def test_gradients_are_clipped_by_a_closure_that_looks_the_norm_up(net, batch, bits):
    x, y = batch
    clip = Value(math.inf)
    tuner = SGDSA(net, grid(lr=[0.1], clip=[0.01]), loop={"clip": clip}, temperature=math.inf)
    twin, start = copy.deepcopy(net), torch.get_rng_state()

    def closure():
        tuner.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), clip.value)
        return loss

    tuner.step(closure)
    torch.set_rng_state(start)
    F.cross_entropy(twin(x), y).backward()
    norm = nn.utils.clip_grad_norm_(twin.parameters(), 0.01)
    assert norm > 0.01
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    assert bits(list(net.parameters())) == bits(list(twin.parameters()))


def test_whatever_reads_and_writes_is_an_option():
    class Temperature:
        def read(self):
            return 1

        def write(self, value):
            pass

    assert all(isinstance(o, LoopOption) for o in (Temperature(), Value(1), Attribute("x", E())))


class E:
    x = 1


BAD = {
    "no mapping": (
        {"loop": [Value(1)]},
        TypeError,
        ["SGDSA(loop=...)", "map names", "Value(1)"],
    ),
    "no option": (
        {"loop": {"clip": 1.0}},
        TypeError,
        ["SGDSA(loop={'clip': ...})", "read() and write(value)", "1.0"],
    ),
    "the class of one": (
        {"loop": {"clip": Value}},
        TypeError,
        ["SGDSA(loop={'clip': ...})", "read() and write(value)", "Value"],
    ),
    "a name of the base": (
        {"loop": {"momentum": Value(0.9)}},
        ValueError,
        ["SGDSA(loop=...)", "other names than the options of SGD", "'momentum'"],
    ),
    "an option that nobody has": (
        {"neighborhood": grid(lr=[0.1], dropuot=[0.1]), "loop": {"dropout": Value(0.1)}},
        ValueError,
        ["SGDSA(neighborhood=...)", "'dropuot'", "registered, dropout"],
    ),
}


@pytest.mark.parametrize(("options", "error", "parts"), BAD.values(), ids=BAD)
def test_bad_input_names_argument_rule_and_value(net, options, error, parts):
    with pytest.raises(error) as caught:
        SGDSA(net, **options)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_an_attribute_that_is_none():
    with pytest.raises(AttributeError, match=r"'rate'.*Dropout, which has none of that name"):
        Attribute("rate", nn.Dropout())
    with pytest.raises(TypeError, match="must be given an object"):
        Attribute("p")


def test_an_option_that_h_does_not_set_is_left_alone(net, loss_of):
    smoothing = Value("untouched")
    tuner = EmbeddedTuner(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, loop={"smoothing": smoothing}
    )
    tuner.step(loss_of)
    assert smoothing.value == "untouched"


def test_objects_that_differ_cannot_share_an_option(net):
    """A rejection would give all of them the value of the first."""
    with pytest.raises(ValueError, match=r"Attribute\('p', ...\) must be the same .* 0.3 and 0.5"):
        Attribute("p", net.drop, nn.Dropout(0.5))


OTHER_LOOPS = {
    "none": ({}, grid(lr=[30.0, 0.1])),
    "others": ({"clip": Value(1.0)}, grid(lr=[30.0, 0.1], clip=[1.0])),
}


@pytest.mark.parametrize(("loop", "neighborhood"), OTHER_LOOPS.values(), ids=OTHER_LOOPS)
def test_a_state_of_other_options_is_refused_as_a_whole(
    make_net, make_batches, picture, loop, neighborhood
):
    net = make_net()
    tuner, _, closure, _ = smoothed(net, temperature=math.inf)
    for x, y in make_batches(3):
        tuner.step(closure(x, y))
    other = SGDSA(make_net(), neighborhood, loop=loop, temperature=math.inf)
    before = picture(other.model, other), str(other.summary())
    with pytest.raises(
        ValueError, match=r"SGDSA.load_state_dict.*the same H.*label_smoothing=.*drop"
    ):
        other.load_state_dict(tuner.state_dict())
    assert (picture(other.model, other), str(other.summary())) == before


def test_a_pick_that_is_not_in_the_neighborhood_is_refused(make_net):
    smoothing = {"smoothing": Value(0.0)}
    prepared = SGDSA(make_net(), grid(lr=[0.1], smoothing=[0.2]), loop=smoothing)
    prepared.prepare()
    other = SGDSA(make_net(), grid(lr=[0.1], smoothing=[0.3]), loop=smoothing)
    with pytest.raises(ValueError, match=r"the same H.*smoothing=0.2"):
        other.load_state_dict(prepared.state_dict())
    assert other.prepare()["smoothing"] == 0.3
