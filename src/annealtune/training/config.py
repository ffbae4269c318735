"""What a run is: every key, its rule and its default. Known without importing torch."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from annealtune.errors import ConfigError
from annealtune.training.annealed_options import AdamwSaOptions, SgdSaOptions, SsaOptions
from annealtune.training.data import names as data_names
from annealtune.training.explanations import explain
from annealtune.training.lookup import is_factory, split_factory
from annealtune.training.models.names import parse
from annealtune.training.neighborhood_options import LoopNeighborhood, RandomRateOptions
from annealtune.training.options import (
    AdamwOptions,
    Factor,
    Flag,
    Options,
    ScheduledSgdOptions,
    SgdMomentumOptions,
    SgdOptions,
)
from annealtune.training.self_tuned_options import SelfTunedOptions

MethodName = Literal[
    "self-tuned",
    "sgd-sa",
    "adamw-sa",
    "ssa",
    "scheduled-sgd",
    "sgd",
    "sgd-momentum",
    "adamw",
    "random-rate",
]
DEFAULT_METHOD: MethodName = "self-tuned"
Positive = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
MOST_THREADS = 1024
# Keys that may differ when a run is continued: they do not change its results.
FREE_KEYS = frozenset({"data_dir", "download", "checkpoint_every", "tensorboard"})
# Written beside the config of a run, for the reader; not part of it.
ENVIRONMENT = "environment"
# Tables of an experiment file that say which runs a study consists of; not part of any one run.
STUDY_TABLES = ("study", "methods")


class RunConfig(Options):
    """One run, from data to best weights."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        populate_by_name=True,
    )

    data: str = Field(
        "digits",
        description="digits, fashion-mnist, cifar10, image-folder or package.module:factory",
    )
    data_dir: Path | None = Field(
        None, description="where the data is (else ANNEALTUNE_DATA, ./data)"
    )
    download: Flag = Field(False, description="fetch missing data from its official address")
    image_size: tuple[Positive, Positive] | None = Field(
        None, description="height and width to resize an image-folder to"
    )
    train_size: Positive | None = Field(None, description="use a fixed subset of this many images")
    augment: Literal["none", "crop-flip"] = Field(
        "none", description="random crop and flip, or none"
    )
    model: str = Field(
        "small-cnn",
        description="vgg16, resnet34, small-cnn, mlp, each with -wK for widths / K, "
        "or package.module:factory",
    )
    pad: Annotated[int, Field(ge=0, le=4096, strict=True)] | None = Field(
        None, description="zero-pad images to a multiple of this (unset: 32 for vgg, 0: never)"
    )
    method: MethodName = Field(DEFAULT_METHOD, description="how the weights are trained")
    epochs: Positive = Field(30, description="passes over the training set")
    batch_size: Positive = Field(64, description="images in a minibatch")
    reshuffle: Flag = Field(True, description="new minibatches every epoch, or divided once")
    seed: Seed = Field(0, description="sets the three seeds below")
    init_seed: Seed | None = Field(None, description="of initial weights and dropout")
    data_seed: Seed | None = Field(None, description="of subset, validation split and minibatches")
    split_seed: Seed | None = Field(
        None, description="of subset and validation split (unset: data_seed)"
    )
    decision_seed: Seed | None = Field(
        None, description="of the settings picked, the accept test and the winners of races"
    )
    validation_fraction: Factor = Field(
        0.1, description="share of the training set that chooses the best epoch"
    )
    validate_on: Literal["validation", "test"] = Field(
        "validation", description="test: the paper's protocol, the test set chooses the best epoch"
    )
    train_sample: Positive = Field(
        10, description="minibatches on which training loss and accuracy are measured"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps")
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS, strict=True)] | None = Field(
        None, description="CPU threads (unset: torch's choice)"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="autocast of the forward"
    )
    compile: Flag = Field(False, description="torch.compile the model")
    channels_last: Flag | None = Field(
        None, description="memory format of images (unset: where the model convolves)"
    )
    checkpoint_every: str = Field(
        "epoch", description="epoch, N steps or Nm minutes; always at the end of an epoch"
    )
    tensorboard: Flag = Field(False, description="also write TensorBoard events")

    self_tuned: SelfTunedOptions = Field(SelfTunedOptions(), alias="self-tuned")
    sgd_sa: SgdSaOptions = Field(SgdSaOptions(), alias="sgd-sa")
    adamw_sa: AdamwSaOptions = Field(AdamwSaOptions(), alias="adamw-sa")
    ssa: SsaOptions = SsaOptions()
    scheduled_sgd: ScheduledSgdOptions = Field(ScheduledSgdOptions(), alias="scheduled-sgd")
    sgd: SgdOptions = SgdOptions()
    sgd_momentum: SgdMomentumOptions = Field(SgdMomentumOptions(), alias="sgd-momentum")
    adamw: AdamwOptions = AdamwOptions()
    random_rate: RandomRateOptions = Field(RandomRateOptions(), alias="random-rate")

    @field_validator("checkpoint_every", mode="before")
    @classmethod
    def _steps_or_minutes(cls, value: Any) -> Any:
        text = str(value)
        if not re.fullmatch(r"epoch|[1-9]\d*m?", text):
            raise ValueError(
                f"must be epoch, a number of steps, or minutes such as 5m, got {value!r}"
            )
        return text

    @field_validator("data")
    @classmethod
    def _data_is_known(cls, value: str) -> str:
        if is_factory(value):
            split_factory("data", value)
        return data_names.check(value)

    @field_validator("data_dir")
    @classmethod
    def _path_is_text(cls, value: Path | None) -> Path | None:
        text = str(value)
        if "\0" in text or text.encode("utf-8", "replace") != text.encode("utf-8", "ignore"):
            raise ValueError(f"must be text that a file can hold, got {text!r}")
        return value

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, value: str) -> str:
        if is_factory(value):
            split_factory("model", value)
        else:
            parse(value)
        return value

    @field_validator("device")
    @classmethod
    def _device_is_known(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", value):
            raise ValueError(f"must be auto, cpu, cuda, cuda:N or mps, got {value!r}")
        return value

    @model_validator(mode="after")
    def _the_method_fits(self) -> RunConfig:
        if isinstance(self.options, LoopNeighborhood):
            self.options.check_run(self.method, precision=self.precision, augment=self.augment)
        return self

    @property
    def seeds(self) -> dict[str, int]:
        """The three seeds, each `seed` where it is not set apart."""
        return {
            name: self.seed if getattr(self, name) is None else getattr(self, name)
            for name in ("init_seed", "data_seed", "decision_seed")
        }

    @property
    def options(self) -> Options:
        """The block of the chosen method."""
        block: Options = getattr(self, self.method.replace("-", "_"))
        return block

    def to_dict(self) -> dict[str, Any]:
        """Return every key that is set and the block of the chosen method, as plain data."""
        left_out: dict[str, Any] = {n: True for n in type(self).model_fields if _is_block(n)}
        chosen = self.method.replace("-", "_")
        idle = self.options.idle() if isinstance(self.options, LoopNeighborhood) else set()
        left_out[chosen] = idle
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=left_out)

    def to_toml(self, environment: Mapping[str, Any] | None = None) -> str:
        """Return the config as TOML, with a table about the environment if there is one."""
        tables = self.to_dict()
        if environment is not None:
            tables[ENVIRONMENT] = dict(environment)
        return tomli_w.dumps(tables)


def from_values(values: Mapping[str, Any], source: str = "config") -> RunConfig:
    """Check plain data and return the config.

    Raises:
        ConfigError: naming every bad key, its value and its rule.
    """
    try:
        return RunConfig.model_validate(
            {k: v for k, v in values.items() if k not in (ENVIRONMENT, *STUDY_TABLES)}
        )
    except ValidationError as error:
        lines = [explain(detail, RunConfig) for detail in error.errors()]
        raise ConfigError(f"{source}: " + "\n".join(lines)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: if it cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # also of text that is no UTF-8, and of endless numbers
        raise ConfigError(f"{path}: is no valid TOML: {error}") from None


def assign(values: dict[str, Any], assignment: str) -> None:
    """Set one key from text such as ``sgd-sa.temperature=0.5``; the value is written as in TOML.

    Raises:
        ConfigError: if it is no assignment.

    Example:
        >>> values = {}
        >>> assign(values, "sgd-sa.lr=[0.1, 0.01]")
        >>> values
        {'sgd-sa': {'lr': [0.1, 0.01]}}
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {assignment!r}: must be KEY=VALUE, such as sgd.lr=0.1")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # no TOML: plain text
        value = text.strip()
    *tables, last = key.strip().split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {assignment!r}: {table!r} is no table of options")
    values[last] = value


def _is_block(name: str) -> bool:
    annotation = RunConfig.model_fields[name].annotation
    return isinstance(annotation, type) and issubclass(annotation, Options)
