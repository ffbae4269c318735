"""The paper's experiments by name, each a few studies, at three sizes.

``paper`` is the paper's own size and needs a GPU. ``regime`` has the same images, minibatches,
steps, rates and temperatures with narrower nets, for a CPU and a night. ``small`` shows within
minutes that everything runs; its numbers say nothing about the paper. Figures that show the same
runs name the same studies: whoever has run `table-1` has the runs of figures 2, 3 and 4.
"""

import dataclasses
from pathlib import Path
from typing import Literal, NamedTuple

from annealtune.errors import ConfigError, did_you_mean

Size = Literal["small", "regime", "paper"]
SIZES: tuple[Size, ...] = ("small", "regime", "paper")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"

# What the small size has in place of the regime's. Test images are not evaluated every epoch.
_SMALL = ("epochs=10", "train_size=2560", "batch_size=128", "validate_on=validation")


@dataclasses.dataclass(frozen=True)
class Part:
    """One study of a reproduction.

    Attributes:
        experiment: the name of its experiment file, without ``paper-``.
        methods: labels.
        narrow: the net for a CPU.
        seeds: by size, as `--seeds` takes them.
        vary: which seed they are.
    """

    experiment: str
    methods: tuple[str, ...]
    narrow: str
    seeds: dict[Size, str]
    vary: str = "seed"

    @property
    def file(self) -> str:
        """The name of its experiment file."""
        return f"paper-{self.experiment}"

    def name(self, size: Size) -> str:
        """Return the name of the study, which is that of its directory."""
        name = f"{size}-{self.experiment}"
        return name if self.vary == "seed" else f"{name}-{self.vary.replace('_', '-')}"

    def assignments(self, size: Size) -> list[str]:
        """Return what differs from the experiment file, as ``--set`` takes it."""
        narrow = [f"model={self.narrow}", "threads=1"]
        return {"paper": [], "regime": narrow, "small": [*narrow, *_SMALL]}[size]


class Reproduction(NamedTuple):
    """One table or figure of the paper: what it is about, and the studies behind it."""

    shows: str
    parts: tuple[Part, ...]


_COMPARED = ("scheduled-sgd", "sgd-sa-paper-text", "sgd-sa-paper-code", "random-rate")
_VGG = Part(
    "cifar10-vgg16",
    (*_COMPARED, "self-tuned-sgd", "self-tuned"),
    narrow="vgg16-w8",
    seeds={"small": "0", "regime": "0-2", "paper": "0-9"},
)
_RESNET = Part(
    "cifar10-resnet34",
    _VGG.methods,
    narrow="resnet34-w16",
    seeds={"small": "0", "regime": "0", "paper": "0-9"},
)
_SSA = Part(
    "fashion-mnist-ssa",
    ("ssa-paper-text", "ssa-paper-code", "sgd"),
    narrow="vgg16-w16",
    seeds={"small": "0", "regime": "0", "paper": "0-4"},
)

_INIT_SEEDS = dataclasses.replace(
    _VGG, methods=("scheduled-sgd", "sgd-sa-paper-code"), vary="init_seed"
)
_DECISION_SEEDS = dataclasses.replace(_VGG, methods=("sgd-sa-paper-code",), vary="decision_seed")

REPRODUCTIONS = {
    "table-1": Reproduction("final loss and accuracy, seed by seed, both nets", (_VGG, _RESNET)),
    "figure-1": Reproduction("SSA against SGD at a constant rate, Fashion-MNIST", (_SSA,)),
    "figure-2": Reproduction("accept probability and training accuracy, VGG", (_VGG,)),
    "figure-3": Reproduction("losses and accuracies over the epochs, ResNet", (_RESNET,)),
    "figure-4": Reproduction("losses and accuracies over the epochs, VGG", (_VGG,)),
    "figure-long": Reproduction("SSA's accept probability and worsening moves", (_SSA,)),
    "seed-remark": Reproduction(
        "the seed of the initial weights against that of the decisions, VGG",
        (_INIT_SEEDS, _DECISION_SEEDS),
    ),
}

# The studies that these names stand for. Only their pages compare with the paper's own figures.
PAPER_STUDIES = frozenset(
    part.name(size) for each in REPRODUCTIONS.values() for part in each.parts for size in SIZES
)


def net_of(study: str) -> str | None:
    """Return which net of the paper's Table 1 a study is about, by its name; None if it is not.

    Example:
        >>> net_of("regime-cifar10-vgg16"), net_of("demo")
        ('vgg16', None)
    """
    for part in (_VGG, _RESNET):
        if study in map(part.name, SIZES):
            return part.experiment.rpartition("-")[2]
    return None


def find_experiment(file: Path) -> Path:
    """Return an experiment file: the one at this path, else the one of this name in the package.

    Raises:
        ConfigError: if there is neither.
    """
    if file.exists() and not file.is_dir():
        return file
    shipped = EXPERIMENTS / f"{file.name}.toml"
    if file.name == str(file) and not file.suffix and shipped.is_file():
        return shipped
    names = sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))
    hint = did_you_mean(file.name.removesuffix(".toml"), names)
    raise ConfigError(
        f"{file}: there is no such file{hint}{' Experiments' if hint else '; experiments'} with a "
        f"name: {', '.join(names)}"
    )
