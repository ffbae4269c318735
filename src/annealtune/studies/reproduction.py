"""The paper's experiments by name, each a few studies, at three sizes.

``paper`` is the paper's own size and needs a GPU. ``regime`` has the same images, minibatches,
steps, rates and temperatures with narrower nets, for a CPU and a night. ``small`` shows within
minutes that everything runs; its numbers say nothing about the paper. Figures that show the same
runs name the same studies: whoever has run `table-1` has the runs of figures 2, 3 and 4.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from annealtune.errors import ConfigError, did_you_mean
from annealtune.studies.plan import Plan

Size = Literal["small", "regime", "paper"]
SIZES: tuple[Size, ...] = ("small", "regime", "paper")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"

# What a step costs in forwards of the training minibatch; a backward counts as two. A race of a
# self-tuned run adds a few per cent.
FORWARDS = {
    "scheduled-sgd": 3,
    "sgd": 3,
    "sgd-sa-paper-code": 5,
    "sgd-sa-paper-text": 4,
    "random-rate": 4,
    "self-tuned": 3,
    "self-tuned-sgd": 3,
    "ssa-paper-text": 3,
    "ssa-paper-code": 3,
}
# Images of the training set and of the test set.
_IMAGES = {"cifar10": (50_000, 10_000), "fashion-mnist": (60_000, 10_000)}
# Half of what the paper's TITAN Xp computes at best, in operations a second.
_GPU_SPEED = 6e12
# What the small size has in place of the regime's. Test images are not evaluated every epoch.
_SMALL = ("epochs=10", "train_size=2560", "batch_size=128", "validate_on=validation")


@dataclasses.dataclass(frozen=True)
class Part:
    """One study of a reproduction.

    Attributes:
        experiment: the name of its experiment file, without ``paper-``.
        methods: labels.
        narrow: the net for a CPU.
        seconds: what a forward of one image takes there, on one core.
        multiply_adds: of one image in the paper's net.
        seeds: by size, as `--seeds` takes them.
        vary: which seed they are.
    """

    experiment: str
    methods: tuple[str, ...]
    narrow: str
    seconds: float
    multiply_adds: float
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

    def hours(self, plan: Plan, size: Size, jobs: int) -> float:
        """Return the estimated time of its runs: on one GPU like the paper's, else on `jobs` cores.

        Args:
            plan: its runs, whatever ``--set`` made of their lengths.
            size: which net they train.
            jobs: cores that share the work; a GPU is one.
        """
        forwards = 0
        for label, config in plan.configs.items():
            images, evaluated = _IMAGES.get(config.data, (0, 0))
            images = config.train_size or images
            if config.validate_on != "test":
                evaluated = round(config.validation_fraction * images)
                images -= evaluated
            forwards += config.epochs * (FORWARDS[label] * images + evaluated)
        forwards *= len(plan.seeds)
        if size == "paper":
            return forwards * 2 * self.multiply_adds / _GPU_SPEED / 3600
        return forwards * self.seconds / jobs / 3600


class Reproduction(NamedTuple):
    """One table or figure of the paper: what it is about, and the studies behind it."""

    shows: str
    parts: tuple[Part, ...]

    def hours(self, plans: Sequence[Plan], size: Size, jobs: int) -> float:
        """Return the estimated time of all its studies, given the plan of each."""
        pairs = zip(self.parts, plans, strict=True)
        return sum(part.hours(plan, size, jobs) for part, plan in pairs)


_COMPARED = ("scheduled-sgd", "sgd-sa-paper-text", "sgd-sa-paper-code", "random-rate")
_VGG = Part(
    "cifar10-vgg16",
    (*_COMPARED, "self-tuned-sgd", "self-tuned"),
    narrow="vgg16-w8",
    seconds=1.8e-4,
    multiply_adds=0.31e9,
    seeds={"small": "0", "regime": "0-2", "paper": "0-9"},
)
_RESNET = Part(
    "cifar10-resnet34",
    _VGG.methods,
    narrow="resnet34-w16",
    seconds=3.8e-4,
    multiply_adds=1.16e9,
    seeds={"small": "0", "regime": "0", "paper": "0-9"},
)
_SSA = Part(
    "fashion-mnist-ssa",
    ("ssa-paper-text", "ssa-paper-code", "sgd", "scheduled-sgd", "self-tuned-sgd", "self-tuned"),
    narrow="vgg16-w16",
    seconds=1.3e-4,
    multiply_adds=0.31e9,
    seeds={"small": "0", "regime": "0", "paper": "0-4"},
)

_INIT_SEEDS = dataclasses.replace(
    _VGG, methods=("scheduled-sgd", "sgd-sa-paper-code"), vary="init_seed"
)
_DECISION_SEEDS = dataclasses.replace(_VGG, methods=("sgd-sa-paper-code",), vary="decision_seed")

REPRODUCTIONS = {
    "table-1": Reproduction("final loss and accuracy, seed by seed, both nets", (_VGG, _RESNET)),
    "figure-1": Reproduction("SSA and SGD on Fashion-MNIST; beside them self-tuned", (_SSA,)),
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
