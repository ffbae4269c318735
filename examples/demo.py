"""SGD-SA beside Scheduled-SGD, and beside the same random rates without the accept test.

A small net learns the 8x8 digits of scikit-learn. H reaches from a cautious rate to a reckless
one, so that the accept test has something to refuse. The best epoch of each run is chosen on a
validation split; the test set is looked at once a run, with the weights of that epoch.
"""

import argparse
import copy
import math
from collections import Counter
from statistics import fmean, stdev

import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from torch.nn.functional import cross_entropy

from annealtune import SGDSA, NonFiniteLossError, grid
from annealtune.training import data, models

METHODS = ("SGD-SA", "Scheduled-SGD", "always accept")
RATES = (3.0, 1.0, 0.3, 0.1, 0.03)
COLUMNS = ("", "seed", "accuracy", "loss", "epoch", "kept", "fwd", "bwd")


def build_optimizer(method, model, options, seed):
    """Return the optimizer and what it wants to be called at the end of an epoch."""
    if method == "Scheduled-SGD":
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        milestones = [round(share * options.epochs) for share in (0.3, 0.7)]
        return opt, torch.optim.lr_scheduler.MultiStepLR(opt, milestones, gamma=0.1).step
    how = {"preset": "paper-text"} if method == "SGD-SA" else {"temperature": math.inf}
    opt = SGDSA(model, grid(lr=options.rates), seed=seed, **how)
    return opt, opt.cool


def train(method, seed, options, digits, report):
    """Train one net; return test accuracy, test loss and the other columns of the table."""
    scaling = {"mean": digits.mean, "std": digits.std, "scale": digits.scale}
    images, labels = digits.train_images, digits.train_labels
    kept, held_out = data.split(len(labels), 0.2, seed=0)
    batches = data.Batches(images[kept], labels[kept], batch_size=32, seed=seed, **scaling)
    whole = {"batch_size": 999, "seed": 0, **scaling}
    (validation,) = data.Batches(images[held_out], labels[held_out], **whole)
    (test,) = data.Batches(digits.test_images, digits.test_labels, **whole)

    torch.manual_seed(seed)
    model = models.build("mlp", channels=1, image_size=(8, 8), classes=10)
    opt, end_epoch = build_optimizer(method, model, options, seed)
    calls = count_calls(model)
    best, best_epoch, weights = (-math.inf, -math.inf), "0", copy.deepcopy(model.state_dict())
    for epoch in range(1, options.epochs + 1):
        try:
            loss = fmean([train_step(opt, model, *minibatch) for minibatch in batches])
        except NonFiniteLossError:  # nothing is learned from NaN: what was best so far counts
            best_epoch += f", NaN in {epoch}"
            break
        end_epoch()
        accuracy, validation_loss = evaluate(model, validation)
        if (accuracy, -validation_loss) > best:
            best, best_epoch = (accuracy, -validation_loss), str(epoch)
            weights = copy.deepcopy(model.state_dict())
        report(epoch, f"loss {loss:.3f}  accuracy {accuracy:.1%}  {state_of(opt)}")
    model.load_state_dict(weights)
    accepted = f"{opt.summary().total.acceptance_rate:.0%}" if isinstance(opt, SGDSA) else "-"
    return *evaluate(model, test), best_epoch, accepted, *map(str, calls.values())


def train_step(opt, model, inputs, targets):
    def closure():  # the one that every torch optimizer takes
        opt.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    return opt.step(closure).item()


@torch.no_grad()
def evaluate(model, examples):
    inputs, targets = examples
    scores = model.eval()(inputs)
    model.train()
    hits = (scores.argmax(1) == targets).double()
    return hits.mean().item(), cross_entropy(scores, targets).item()


def state_of(opt):
    if isinstance(opt, SGDSA):
        return f"T {opt.temperature:.2g}  accepted {opt.summary().total.acceptance_rate:.0%}"
    return f"rate {opt.param_groups[0]['lr']:.2g}"


def count_calls(model):
    """Count the forwards and backwards of training, whoever asks for them."""
    calls = Counter(forwards=0, backwards=0)
    model.register_forward_hook(lambda net, *_: calls.update(forwards=int(net.training)))
    first = next(model.parameters())
    first.register_post_accumulate_grad_hook(lambda _: calls.update(backwards=1))
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3, help="how many, counted from 0")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="the set H")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the order of a sum, and so its last bits, depend on it
    digits, console = data.load("digits"), Console()
    table = Table(
        *COLUMNS,
        title="Test set, at the best epoch of the validation split",
        caption="kept: accepted moves; fwd, bwd: calls in training; sd: over the seeds",
        box=box.SIMPLE_HEAD,
    )
    columns = TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for method in METHODS:
            rows = []
            for seed in range(options.seeds):
                name = f"{method}, seed {seed}"
                bar = progress.add_task(name, total=options.epochs)

                def report(epoch, line, bar=bar, name=name):
                    progress.update(bar, completed=epoch, description=f"{name:22} {line:56}")
                    if not console.is_terminal and epoch in (1, options.epochs):
                        print(f"{name}, epoch {epoch}: {line}", flush=True)

                accuracy, loss, *rest = train(method, seed, options, digits, report)
                rows.append((accuracy, loss))
                table.add_row(method, str(seed), f"{accuracy:.1%}", f"{loss:.3f}", *rest)
            if len(rows) > 1:
                accuracies, losses = zip(*rows, strict=True)
                for name, of in (("mean", fmean), ("sd", stdev)):
                    table.add_row("", name, f"{of(accuracies):.1%}", f"{of(losses):.3f}")
            table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
