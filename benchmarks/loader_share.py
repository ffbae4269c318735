"""How much of an epoch of small-cnn on Fashion-MNIST goes into making minibatches.

    python benchmarks/loader_share.py [DATA_DIR] [--threads N] [--batch-size N] [--limit PERCENT]

Plain SGD, the method that leaves the loader the largest share. Times the loader inside the epoch,
prints both times and the share, and exits with 1 if the share is above the limit.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from annealtune.training.data import Batches, load
from annealtune.training.data.augmentation import by_name
from annealtune.training.models import build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_dir", type=Path, nargs="?", help="holds fashion-mnist/")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--augment", default="none", help="none or crop-flip")
    parser.add_argument("--limit", type=float, default=5.0, help="largest share allowed, percent")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    data = load("fashion-mnist", data_dir=options.data_dir)
    net = build("small-cnn", data.task)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    batches = Batches(
        data.train_inputs,
        data.train_targets,
        batch_size=options.batch_size,
        seed=0,
        mean=data.mean,
        std=data.std,
        scale=data.scale,
        augment=by_name(options.augment),
    )
    loading, begin = 0.0, time.perf_counter()
    waiting = begin
    for inputs, targets in batches:
        loading += time.perf_counter() - waiting
        optimizer.zero_grad()
        functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
        waiting = time.perf_counter()
    epoch = time.perf_counter() - begin

    share = 100 * loading / epoch
    print(
        f"{len(data.train_targets):,} images, batch {options.batch_size}, augment "
        f"{options.augment}, {options.threads} thread(s): epoch {epoch:.1f} s, loader "
        f"{loading:.2f} s, share {share:.2f} %"
    )
    if share > options.limit:
        sys.exit(f"the loader's share is above {options.limit} %")


if __name__ == "__main__":
    main()
