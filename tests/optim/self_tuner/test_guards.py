"""What a loop does besides forward, backward and step: it reaches every arm, or it is said."""

import copy

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F

from annealtune import EmbeddedTuner, SelfTuner, grid
from annealtune.errors import RanksError


def inputs(number=0):
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(number))
    return x, x.sum(1, keepdim=True)


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def test_a_hook_is_undone_with_its_step_and_can_be_removed():
    model, base = make()
    opt = EmbeddedTuner(base, model, neighborhood=grid(lr=[1e4]), temperature=0.0)
    calls = []
    handle = opt.after_step(lambda: calls.append(1))
    opt.step(lambda: F.mse_loss(model(inputs()[0]), inputs()[1]))
    assert not opt.last_step.accepted
    assert calls == []
    handle.remove()
    assert not base._optimizer_step_post_hooks


def test_a_projection_does_not_move_the_centre():
    def rate(projected):
        model, _ = make()
        base = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = SelfTuner(base, model, total_steps=300)
        clamp = lambda *_: [p.data.clamp_(-0.1, 0.1) for p in model.parameters()] and None
        if projected == "by the base":
            base.register_step_post_hook(clamp)
        elif projected:
            opt.after_step(clamp)
        opt.step(lambda: F.mse_loss(model(inputs()[0]), inputs()[1]))
        return opt.lr

    assert rate("by the base") == rate("by us") == rate(None)


def test_a_scheduler_that_leaves_no_mark_is_refused_at_the_first_step():
    for around_base in (True, False):
        model, base = make()
        opt = SelfTuner(base, model)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(base if around_base else opt)
        with pytest.raises(ValueError, match="ReduceLROnPlateau"):
            opt.step(lambda: F.mse_loss(model(inputs()[0]), inputs()[1]))  # noqa: B023
        del scheduler


def test_ranks_that_may_stop_early_are_refused(tmp_path):
    store = f"file://{tmp_path}/store"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        model, base = make()
        ddp = nn.parallel.DistributedDataParallel(model)
        opt = SelfTuner(base, model)  # which sees DDP in its first forward
        compute_loss = opt.record(lambda x, y: F.mse_loss(ddp(x), y))
        with ddp.join():
            compute_loss(*inputs()).backward()
            with pytest.raises(RanksError, match="join"):
                opt.step()
    finally:
        distributed.destroy_process_group()


class Trainer:
    """Clips in a method, and has lists of its own."""

    def __init__(self):
        self.model, base = make()
        self.opt = SelfTuner(base, self.model, total_steps=1000)
        self.losses = []
        self.opt.before_step(self.clip)
        self.compute_loss = self.opt.record(lambda x, y: F.mse_loss(self.model(x), y))

    def clip(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def fit(self, steps):
        for number in range(steps):
            loss = self.compute_loss(*inputs(number))
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            self.losses.append(loss.item())


def test_what_a_loop_notes_in_the_object_of_a_hook_stays():
    trainer = Trainer()
    trainer.fit(60)
    assert not trainer.opt.is_racing
    assert len(trainer.losses) == 60


def test_a_hook_may_wait_for_a_variable():
    model, base = make()
    opt = SelfTuner(base, model, total_steps=1000)
    opt.before_step(lambda: late if opt.steps else None)
    compute_loss = opt.record(lambda x, y: F.mse_loss(model(x), y))
    compute_loss(*inputs()).backward()
    opt.step()
    late = 1.0
    assert opt.steps == late


@pytest.mark.parametrize("saved_at", [1, 4])
def test_a_teacher_that_a_hook_moves_is_loaded_with_its_arm(saved_at):
    def begin():
        torch.manual_seed(0)
        student, teacher = nn.Linear(6, 1), nn.Linear(6, 1).requires_grad_(False)
        model = nn.ModuleList([student, teacher])
        opt = SelfTuner(torch.optim.AdamW(student.parameters()), model, total_steps=1000)

        @torch.no_grad()
        def follow():
            for own, other in zip(teacher.parameters(), student.parameters(), strict=True):
                own.lerp_(other, 0.3)

        opt.after_step(follow)
        return model, opt, opt.record(lambda x: F.mse_loss(student(x), teacher(x.flip(1)) + 1))

    def losses(saved_at):
        model, opt, compute_loss = begin()
        for step in range(12):
            if step == saved_at:
                states = copy.deepcopy((model.state_dict(), opt.state_dict()))
                model, opt, compute_loss = begin()
                model.load_state_dict(states[0])
                opt.load_state_dict(states[1])
            compute_loss(inputs(step)[0]).backward()
            opt.step()
            opt.zero_grad()
        return opt._race.standings.losses if opt.is_racing else opt.races[-1].losses

    assert list(map(list, losses(saved_at))) == list(map(list, losses(None)))
