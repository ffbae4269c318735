"""What a run is: every key, its rule and its default. Known without importing torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo

from annealtune.errors import did_you_mean

from .blocks import (
    AdamwOptions,
    AdamwSaOptions,
    Count,
    Factor,
    Flag,
    Options,
    RandomRateOptions,
    ScheduledSgdOptions,
    Seed,
    SelfTunedOptions,
    SgdOptions,
    SgdSaOptions,
    SsaOptions,
)
from .names import check_data, check_model

MethodName = Literal[
    "self-tuned",
    "sgd-sa",
    "adamw-sa",
    "ssa",
    "scheduled-sgd",
    "sgd",
    "adamw",
    "random-rate",
]
DEFAULT_METHOD: MethodName = "self-tuned"
DEVICES = ("auto", "cpu", "cuda", "mps")
MOST_THREADS = 1024
# Keys that may differ when a run is continued: they do not change its results.
FREE_KEYS = frozenset({"data_dir", "download", "checkpoint_every"})
# A table in the config file of a run, for the reader; not part of the config.
ENVIRONMENT = "environment"
# Tables of an experiment file that say which runs a study consists of; not part of any one run.
STUDY_TABLES = ("study", "methods")


class RunConfig(Options):
    """One run, from data to best weights."""

    model_config = ConfigDict(validate_default=True, populate_by_name=True)

    data: str = Field(
        "digits",
        description="digits, fashion-mnist, cifar10, image-folder or package.module:factory",
    )
    data_dir: Path | None = Field(None, description="where the data is (unset: ./data)")
    download: Flag = Field(False, description="fetch missing data from its official address")
    image_size: tuple[Count, Count] | None = Field(
        None, description="height and width to resize an image-folder to"
    )
    train_size: Count | None = Field(None, description="use a fixed subset of this many samples")
    model: str = Field(
        "small-cnn",
        description="vgg16, resnet34, small-cnn, mlp, each with -wK for widths / K, "
        "or package.module:factory",
    )
    pad: Annotated[int, Field(ge=0, le=256, strict=True)] | None = Field(
        None, description="zero-pad images to a multiple of this (unset: 32 for vgg, 0: never)"
    )
    method: MethodName = Field(DEFAULT_METHOD, description="how the weights are trained")
    epochs: Count = Field(30, description="passes over the training set")
    batch_size: Count = Field(64, description="samples in a minibatch")
    reshuffle: Flag = Field(True, description="new minibatches every epoch, or divided once")
    seed: Seed = Field(0, description="sets the three seeds below")
    init_seed: Seed | None = Field(None, description="of initial weights and dropout")
    data_seed: Seed | None = Field(None, description="of subset, validation split and minibatches")
    split_seed: Seed | None = Field(
        None, description="of subset and validation split (unset: data_seed)"
    )
    decision_seed: Seed | None = Field(None, description="of the settings and the accept test")
    validation_fraction: Factor = Field(
        0.1, description="share of the training set that chooses the best epoch"
    )
    validate_on: Literal["validation", "test"] = Field(
        "validation", description="test: the paper's protocol, the test set chooses the best epoch"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps")
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS, strict=True)] | None = Field(
        None, description="CPU threads (unset: torch's choice)"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="autocast of the forward"
    )
    checkpoint_every: str = Field(
        "epoch", description="epoch, N steps or Nm minutes; always at the end of an epoch"
    )

    self_tuned: SelfTunedOptions = Field(SelfTunedOptions(), alias="self-tuned")
    sgd_sa: SgdSaOptions = Field(SgdSaOptions(), alias="sgd-sa")
    adamw_sa: AdamwSaOptions = Field(AdamwSaOptions(), alias="adamw-sa")
    ssa: SsaOptions = SsaOptions()
    scheduled_sgd: ScheduledSgdOptions = Field(ScheduledSgdOptions(), alias="scheduled-sgd")
    sgd: SgdOptions = SgdOptions()
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
        return check_data(value)

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, value: str) -> str:
        return check_model(value)

    @field_validator("device")
    @classmethod
    def _device_is_known(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", value):
            # What most people call it is nearer to 'cpu' than to 'cuda'.
            hint = did_you_mean(value.lower().replace("gpu", "cuda"), DEVICES)
            raise ValueError(f"must be auto, cpu, cuda, cuda:N or mps, got {value!r}{hint}")
        return value

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
        fields = type(self).model_fields.items()
        left_out: dict[str, Any] = {name: True for name, field in fields if is_block(field)}
        del left_out[self.method.replace("-", "_")]
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=left_out)

    def to_toml(self, environment: Mapping[str, Any] | None = None) -> str:
        """Return the config as TOML, with a table about the environment if there is one."""
        tables = self.to_dict()
        if environment is not None:
            tables[ENVIRONMENT] = dict(environment)
        return tomli_w.dumps(tables)


def is_block(field: FieldInfo) -> bool:
    """Tell whether a key of the config is the block of a method."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, Options)
