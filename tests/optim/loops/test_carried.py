"""A state that the loop carries, and minibatches that an average cannot use: exact, or said."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SelfTuner


def test_a_state_that_the_recorded_function_returns_and_is_given_again(assert_exact):
    """Truncated backpropagation with the state in the loop."""

    def loop(run):
        cell, last = nn.GRUCell(6, 8), nn.Linear(8, 1)

        def loss_of(x, y, hidden):
            hidden = cell(x, hidden)
            return F.mse_loss(last(hidden), y), hidden.detach()

        model = nn.ModuleList([cell, last])
        run.tuned(torch.optim.AdamW(model.parameters(), lr=run.rate), model)
        compute_loss = run.record(loss_of)
        hidden = torch.zeros(16, 8)
        for x, y in run.batches():
            loss, hidden = compute_loss(x, y, hidden)
            loss.backward()
            run.step(loss)
            run.opt.zero_grad()

    try:
        assert_exact(loop)
    except UserWarning as said:
        assert "buffer" in str(said)  # noqa: PT017 - either will do


def test_minibatches_of_a_loader_that_the_average_cannot_use():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    opt = SelfTuner(torch.optim.AdamW(model.parameters()), model, total_steps=300)
    with pytest.raises((TypeError, ValueError), match="loader"), opt.averaged([{"x": 1}]):
        pass
