"""ignite's loops, with a recorded loss, make the decisions of a plain one."""

from __future__ import annotations

import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit.script
    from ignite.engine import Events, create_supervised_trainer


def supervised(task, net, tuner, accumulate):
    """The factory: its loss function is the recorded one, which calls the model by itself."""
    return create_supervised_trainer(
        net,
        tuner,
        tuner.record(lambda x, y: task.loss(net, x, y)),
        model_fn=lambda model, x: x,
        gradient_accumulation_steps=accumulate,
        output_transform=lambda x, y, y_pred, loss: loss.item(),
    )


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_run_of_a_plain_loop(task, kind, counted, accumulate):
    net = task.net()
    count = counted(net)
    tuner = task.tuner(kind, net)
    engine = supervised(task, net, tuner, accumulate)
    losses = []
    state = torch.Generator().manual_seed(6).get_state()

    @engine.on(Events.ITERATION_STARTED)
    def before():
        torch.set_rng_state(state)

    @engine.on(Events.ITERATION_COMPLETED)
    def after():
        nonlocal state
        state = torch.get_rng_state()
        losses.append(engine.state.output)

    if kind == "embedded":
        engine.add_event_handler(Events.EPOCH_COMPLETED, tuner.cool)
    engine.run(task.loader(accumulate), max_epochs=task.epochs)
    found = task.outcome(net, tuner, count, losses)
    found.assert_equals(task.plain(kind, accumulate))
    assert engine.state.iteration == task.steps * accumulate
