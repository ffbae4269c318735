"""What a loop does besides forward, backward and step: it reaches every arm, or it is said."""

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


@pytest.mark.parametrize("kind", [SelfTuner, EmbeddedTuner])
def test_a_closure_may_return_what_a_training_step_does(kind):
    model, base = make()
    opt = kind(base, model)
    opt.step(lambda: {"loss": F.mse_loss(model(inputs()[0]), inputs()[1]), "n": 16})
    opt.step(lambda: (F.mse_loss(model(inputs()[0]), inputs()[1]), 16))
