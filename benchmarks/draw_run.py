"""Draw the curves of one run.

    python benchmarks/draw_run.py RUN OUT.svg

reads RUN/metrics.jsonl and draws loss and accuracy over the epochs, on the training sample and on
the validation set.
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure


def draw(run: Path, picture: Path) -> None:
    """Draw two panels, loss and accuracy."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    epochs = [record["epoch"] for record in records]
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, quantity in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for part, label, style in (
            ("train_eval", "training", "--"),
            ("validation", "validation", "-"),
        ):
            values = [record[f"{part}_{quantity}"] for record in records]
            axes.plot(epochs, values, style, label=label)
        axes.set(xlabel="epoch", ylabel=quantity)
        axes.legend(frameon=False)
    mpl.rcParams["svg.hashsalt"] = "annealtune"
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
