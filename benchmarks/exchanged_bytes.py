"""How many bytes one step of several processes sends, read off the loopback interface.

    unshare -rn sh -c 'ip link set lo up; python benchmarks/exchanged_bytes.py'

in a network of its own, so that nothing else is counted. Every line is a mean over many steps of
two (or --ranks) gloo processes that train an MLP by DDP, summed over the processes; "beyond DDP" is
what the tuner adds to the same steps of the bare optimizer.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from annealtune import SGDSA, SelfTuner, StochasticSA, grid

STEPS = 200


def sent() -> int:
    """Return the bytes that went over loopback so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    raise SystemExit("no loopback interface: ip link set lo up")


def make(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def measured(step: Callable[[], object], steps: int) -> float:
    """Return the bytes of one step."""
    distributed.barrier()
    before = sent()
    distributed.barrier()
    for _ in range(steps):
        step()
    distributed.barrier()
    after = sent()
    distributed.barrier()
    return (after - before) / steps


def stepper(kind: str, width: int, x: Tensor, y: Tensor) -> tuple[Callable[[], object], object]:
    net = make(width)
    model = net if kind == "ssa" else DistributedDataParallel(net)
    loss = lambda: nn.functional.cross_entropy(model(x), y)  # noqa: E731
    if kind == "adamw":
        optimizer = torch.optim.AdamW(net.parameters())

        def step() -> None:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

        return step, optimizer
    if kind == "self-tuned":
        tuner: object = SelfTuner(torch.optim.AdamW(net.parameters()), model=net, total_steps=2000)
    elif kind == "sgd-sa":
        tuner = SGDSA(net, grid(lr=[0.1, 0.01]))
    else:
        tuner = StochasticSA(net)
    return lambda: tuner.step(loss), tuner  # type: ignore[attr-defined]


def work(rank: int, ranks: int, store: str, width: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    x, y = torch.randn(32, 64), torch.randint(10, (32,))
    found: dict[str, float] = {}
    plain, _ = stepper("adamw", width, x, y)
    plain()
    found["AdamW in DDP"] = measured(plain, STEPS)
    racing, tuner = stepper("self-tuned", width, x, y)
    racing()
    assert isinstance(tuner, SelfTuner)
    found["self-tuned, in a race of four arms"] = measured(racing, 3)
    while tuner.is_racing:
        racing()
    found["self-tuned, after the races"] = measured(racing, STEPS)
    tested, _ = stepper("sgd-sa", width, x, y)
    tested()
    found["sgd-sa"] = measured(tested, STEPS)
    free, _ = stepper("ssa", width, x, y)
    free()
    found["ssa, without DDP"] = measured(free, STEPS)
    if rank == 0:
        count = sum(p.numel() for p in make(width).parameters())
        print(f"{ranks} ranks, {count:,} weights of 4 bytes")
        print(f"{'method':<36}{'bytes a step':>14}{'beyond DDP':>12}")
        for name, value in found.items():
            extra = "" if "DDP" in name else f"{value - found['AdamW in DDP']:>12,.0f}"
            print(f"{name:<36}{value:>14,.0f}{extra}")
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options.ranks, f"{folder}/store", options.width)
        multiprocessing.spawn(work, arguments, nprocs=options.ranks)


if __name__ == "__main__":
    main()
