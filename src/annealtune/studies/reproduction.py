"""The paper's experiments by name, each a few studies, at the paper's size and at one for a CPU.

Figures that show the same runs name the same studies: whoever has run `table-1` has the runs of
figures 2, 3 and 4.
"""

import dataclasses
from pathlib import Path
from typing import Literal

from annealtune.errors import ConfigError, did_you_mean, unknown_name
from annealtune.studies.plan import parse_seeds

Size = Literal["small", "paper"]
SIZES: tuple[Size, ...] = ("small", "paper")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"

# What a step costs in forwards of the training minibatch; a backward counts as two.
FORWARDS = {
    "scheduled-sgd": 3,
    "sgd": 3,
    "sgd-sa-paper-code": 5,
    "sgd-sa-paper-text": 4,
    "random-rate": 4,
    "ssa": 3,
}
# Multiply-adds of one image of 32 x 32 in a forward.
_MULTIPLY_ADDS = {"vgg16": 0.31e9, "resnet34": 1.16e9}
# Half of what the paper's TITAN Xp computes at best, in operations a second.
_GPU_SPEED = 6e12
# What evaluations, checkpoints and starting up add to the steps.
_SMALL_OVERHEAD = 0.25
# Steps of a run of a small experiment, and the milliseconds of a plain one, measured on one core.
_SMALL_STEPS = {
    "small-cifar10-vgg11": (9_800, 9.0),
    "small-cifar10-resnet18": (9_800, 16.0),
    "small-fashion-mnist-ssa": (5_000, 20.0),
}


@dataclasses.dataclass(frozen=True)
class Part:
    """One study of a reproduction.

    Attributes:
        experiments: the names of the experiment files, small and paper-sized.
        methods: labels.
        seeds: as `--seeds` takes them.
        vary: which seed they are.
    """

    experiments: dict[Size, str]
    methods: tuple[str, ...]
    seeds: str = "0-9"
    vary: str = "seed"

    def name(self, size: Size) -> str:
        """Return the name of the study, which is that of its directory."""
        experiment = self.experiments[size]
        return experiment if self.vary == "seed" else f"{experiment}-{self.vary.replace('_', '-')}"

    def count(self) -> int:
        """Return how many runs it has."""
        return len(self.methods) * len(parse_seeds(self.seeds))

    def hours(self, size: Size, jobs: int) -> float:
        """Return the estimated time: small on `jobs` cores, else on one GPU like the paper's."""
        forwards = sum(FORWARDS[method] for method in self.methods) * len(parse_seeds(self.seeds))
        experiment = self.experiments[size]
        if size == "small":
            steps, milliseconds = _SMALL_STEPS[experiment]
            seconds = forwards * steps * milliseconds / 3 / 1000 / jobs
            return (1 + _SMALL_OVERHEAD) * seconds / 3600
        net = "resnet34" if "resnet34" in experiment else "vgg16"
        images = 100 * (60_000 if "fashion" in experiment else 50_000)
        return forwards * images * 2 * _MULTIPLY_ADDS[net] / _GPU_SPEED / 3600


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """One table or figure of the paper.

    Attributes:
        name: as the program takes it.
        shows: what it is about.
        parts: the studies behind it.
    """

    name: str
    shows: str
    parts: tuple[Part, ...]

    def hours(self, size: Size, jobs: int) -> float:
        """Return the estimated time of all its studies."""
        return sum(part.hours(size, jobs) for part in self.parts)

    def count(self) -> int:
        """Return how many runs it has."""
        return sum(part.count() for part in self.parts)


_COMPARED = ("scheduled-sgd", "sgd-sa-paper-code", "sgd-sa-paper-text", "random-rate")
_VGG = Part({"small": "small-cifar10-vgg11", "paper": "paper-cifar10-vgg16"}, _COMPARED)
_RESNET = Part({"small": "small-cifar10-resnet18", "paper": "paper-cifar10-resnet34"}, _COMPARED)
_SSA = Part(
    {"small": "small-fashion-mnist-ssa", "paper": "paper-fashion-mnist-ssa"},
    ("ssa", "sgd"),
    seeds="0-4",
)

REPRODUCTIONS = {
    each.name: each
    for each in (
        Reproduction(
            "table-1", "final loss and accuracy, seed by seed, both nets", (_VGG, _RESNET)
        ),
        Reproduction("figure-1", "SSA against SGD at a constant rate, Fashion-MNIST", (_SSA,)),
        Reproduction("figure-2", "accept probability and training accuracy, VGG", (_VGG,)),
        Reproduction("figure-3", "losses and accuracies over the epochs, ResNet", (_RESNET,)),
        Reproduction("figure-4", "losses and accuracies over the epochs, VGG", (_VGG,)),
        Reproduction("figure-long", "SSA's accept probability and worsening moves", (_SSA,)),
        Reproduction(
            "seed-remark",
            "the seed of the initial weights against that of the decisions, VGG",
            (
                Part(_VGG.experiments, ("scheduled-sgd", "sgd-sa-paper-code"), vary="init_seed"),
                Part(_VGG.experiments, ("sgd-sa-paper-code",), vary="decision_seed"),
            ),
        ),
    )
}


# The studies that these names stand for. Only their pages compare with the paper's own figures.
PAPER_STUDIES = frozenset(
    part.name(size) for each in REPRODUCTIONS.values() for part in each.parts for size in SIZES
)


def find_reproduction(name: str) -> Reproduction:
    """Return a reproduction by its name.

    Raises:
        ConfigError: for an unknown name, with the nearest one.
    """
    if name not in REPRODUCTIONS:
        raise unknown_name("reproduce", name, REPRODUCTIONS)
    return REPRODUCTIONS[name]


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
    names = experiment_names()
    hint = did_you_mean(file.name.removesuffix(".toml"), names)
    raise ConfigError(
        f"{file}: there is no such file{hint}{' Experiments' if hint else '; experiments'} with a "
        f"name: {', '.join(names)}"
    )


def experiment_names() -> list[str]:
    """Return the names of the experiments that come with annealtune."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))
