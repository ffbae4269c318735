"""A race against a second implementation: deep copies that are trained by hand."""

import copy
import math
import statistics

import numpy as np
import torch

from annealtune import SelfTuner, grid
from annealtune.annealing import race as rules

# Rates near each other, and some that lose or break.
RATES = {"sgd": [0.05, 0.1, 3.0, 0.002], "adamw": [0.01, 0.02, 10.0, 0.0002]}


def paired(values, others):
    """Mean and standard error of the differences, each at most so many times the median one."""
    differences = torch.tensor(values, dtype=torch.float64) - torch.tensor(others).double()
    median = statistics.median(differences.abs().tolist())
    clipped = differences.clamp(-rules._OUTLIER * median, rules._OUTLIER * median)
    return clipped.mean().item(), clipped.std().item() / math.sqrt(len(values))


def is_flat(losses, window):
    """Whether the first loss is a likely one among the last: within two of their deviations."""
    last = np.array(window[-(len(losses) - 1) :])
    if len(last) < 4:
        return True
    return abs(last.mean() - losses[0]) <= 2 * last.std(ddof=1) * math.sqrt(1 + 1 / len(last))


def race_by_hand(runs, batches, loss_of):
    """Train copies (net, optimizer) side by side; return scores, who was dropped when, the winner.

    From the text of annealing/race.py: the second half of the race counts; from the tenth minibatch
    on whoever is clearly worse than the leader and does not catch up is dropped; the best of those
    that stay wins, once the budget is spent, or twice the budget where the leader's loss has not
    changed since the first one.
    """
    live, losses, dropped = list(range(len(runs))), [[] for _ in runs], {}
    allowed, extra = rules.allowance(None), 0

    def window(arm):
        return losses[arm][-max(rules.LEAST_WINDOW, count // 2) :]

    for count, (x, y) in enumerate(batches, start=1):
        start = torch.get_rng_state()
        extra += len(live) - 1
        for arm in list(live):
            torch.set_rng_state(start)
            net, optimizer = runs[arm]
            optimizer.zero_grad()
            loss = loss_of(net)(x, y)
            loss.backward()
            optimizer.step()
            losses[arm].append(loss.item())
        leader = min(live, key=lambda arm: statistics.fmean(window(arm)))
        for arm in sorted(live, key=lambda arm: -statistics.fmean(window(arm))):
            mean, error = paired(window(arm), window(leader)) if count > 1 else (0.0, 1.0)
            may_go = count >= rules._GRACE and arm != leader
            is_catching_up = losses[arm][-1] - losses[leader][-1] < 2 / 3 * mean
            if may_go and mean > 0 and mean > rules._CLEARLY * error and not is_catching_up:
                live.remove(arm)
                dropped[arm] = count
        budget = allowed.extra_steps * (2 if is_flat(losses[leader], window(leader)) else 1)
        is_spent = extra + len(live) - 1 > budget
        if len(live) == 1 or is_spent or count == allowed.minibatches:
            break
    winner = min(live, key=lambda arm: statistics.fmean(window(arm)))
    scores = [math.fsum(window(arm)) / len(window(arm)) for arm in range(len(runs))]
    return scores, dropped, winner, count


def copies(net, base, rates):
    runs = []
    for rate in rates:
        twin, optimizer = copy.deepcopy((net, base))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.param_groups[1]["lr"] = rate * (0.01 / 0.1)
        runs.append((twin, optimizer))
    return runs


def test_it_is_the_race_that_is_run_by_hand(
    make_net, make_base, make_batches, loss_function, race_through, trained, way, kind
):
    rates = RATES[kind]
    net = make_net()
    base = make_base(net, kind)
    runs = copies(net, base, rates)
    opt = SelfTuner(base, net, neighborhood=grid(lr=rates), warmup=0)
    batches = make_batches(200)
    start = torch.get_rng_state()
    made = race_through(opt, way(opt, loss_function(net)), batches)
    found = trained(net, opt)

    torch.set_rng_state(start)
    scores, dropped, winner, count = race_by_hand(runs, batches, loss_function)
    (info,) = opt.races
    assert made == info.minibatches == count
    assert info.winner == winner
    assert {arm: int(why.split()[-1]) for arm, why in info.dropped.items()} == dropped
    live = [arm for arm in range(len(rates)) if arm not in dropped]
    assert [info.scores[arm] for arm in live] == [scores[arm] for arm in live]
    assert found == trained(*runs[winner])
    assert info.extra_steps == opt.extra_steps
    assert dropped  # else nothing was shown about it


def test_a_minibatch_on_which_no_arm_has_a_finite_loss_counts_for_nobody(
    make_net, make_base, make_batches, loss_function, trained
):
    """No arm steps, and the race lasts as long as without it."""
    ends = []
    for spoilt in ((), (3, 7)):
        torch.manual_seed(0)
        net = make_net()
        opt = SelfTuner(make_base(net, "adamw"), net, neighborhood=grid(lr=[0.01, 0.02]))
        batches = make_batches(300)
        for at in spoilt:
            batches.insert(at, None)
        count = 0
        while opt.is_racing:
            batch = batches[count]
            count += 1
            if batch is None:
                opt.step(lambda: sum(p.sum() for p in net.parameters()) * math.nan)  # noqa: B023
            else:
                opt.step(lambda: loss_function(net)(*batch))  # noqa: B023
        ends.append((trained(net, opt), count - len(spoilt)))
    assert ends[0] == ends[1]
