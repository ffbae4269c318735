"""The form of what a run records: every key that is read, and its rule. Imports no torch.

`docs/metrics.md` says what each means. The checks see to it that whoever shows a record finds
numbers where numbers belong, so that nobody has to look again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from annealtune.annealing.neighborhood import restored

MOST_VALUES = 1 << 26
"""Numbers in one sample: a picture of 4096x4096 in colour has 50 million."""

Size = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Whole = Annotated[int, Field(ge=0, strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Option = Flag | Number | Text | None


def _is_setting(options: dict[str, Any]) -> dict[str, Any]:
    try:
        restored(options)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return options


Setting = Annotated[dict[str, Option | list[Option]], AfterValidator(_is_setting)]


class _Form(BaseModel):
    """Numbers besides those that are named; None stands for one that is not finite."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Number | None]


class _Race(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    step: Whole
    minibatches: Whole
    settings: Annotated[list[Setting], Field(min_length=1)]
    scores: list[Number | None]
    dropped: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Text]
    winner: Whole | None
    reason: Text
    rate: Number
    extra_steps: Whole
    restarted: Flag
    number: Whole = 1
    second: Whole | None = None
    losses: list[list[Number]] = []  # those that are not finite are not taken down

    @model_validator(mode="after")
    def _every_number_is_that_of_an_arm(self) -> Self:
        arms = len(self.settings)
        named = [self.winner, self.second, *map(int, self.dropped)]
        if len(self.scores) != arms or len(self.losses) not in (0, arms):
            raise ValueError(f"must have a score and losses for each of its {arms} arms")
        if any(arm is not None and arm >= arms for arm in named):
            raise ValueError(f"must name arms below {arms}, got {named}")
        return self


class _Epoch(_Form):
    epoch: Annotated[int, Field(ge=1, strict=True)]
    validation_loss: Number | None
    races: list[_Race] = []


class _Count(BaseModel):
    setting: Setting
    tried: Whole
    improved: Whole = 0
    accepted: Whole


class _Moves(BaseModel):
    epoch: Annotated[int, Field(ge=1, strict=True)]
    settings: list[_Count]


class _Best(_Form):
    epoch: Annotated[int, Field(ge=1, strict=True)]
    sha256: Text
    validation_loss: Number | None


class _Result(_Form):
    epochs: Whole
    best_epoch: Whole
    test_loss: Number | None
    validated_on: Text
    races: list[_Race] = []


class _Task(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["classification", "regression", "tokens"]
    input_shape: Annotated[list[Size], Field(min_length=1, max_length=8)]
    input_type: Literal["uint8", "float32", "int64"]
    output_shape: Annotated[list[Size], Field(min_length=1, max_length=8)]
    classes: list[Text] = []
    vocabulary: Size | None = None
    mean: list[Number] = []
    std: list[Number] = []
    scale: Annotated[Number, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _a_sample_fits_into_memory(self) -> Self:
        for shape in (self.input_shape, self.output_shape):
            if math.prod(shape) > MOST_VALUES:
                raise ValueError(f"must have at most {MOST_VALUES:,} values a sample, got {shape}")
        return self


class _Sealed(BaseModel):
    """Lengths and digests; a file that is named lies in the run's own directory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Whole
    epoch: Whole
    config: Text
    files: dict[Annotated[str, Field(pattern=r"^[a-z]+\.[a-z]+$")], tuple[Whole, Text]]
    best: _Best | None

    @model_validator(mode="after")
    def _task_and_records_are_sealed(self) -> Self:
        if missing := {"task.json", "metrics.jsonl", "moves.jsonl"} - self.files.keys():
            raise ValueError(f"must seal {', '.join(sorted(missing))} too")
        return self


class _Manifest(_Sealed):
    step: Whole
    file: Text | None
    bytes: Whole
    sha256: Text | None


def check_epoch(record: Mapping[str, Any], *, whole: bool = False) -> None:
    """Check a line of ``metrics.jsonl``.

    Args:
        record: what was read.
        whole: whether every key must be there that a run writes; what only lists or compares runs
            passes over what it does not find.

    Raises:
        ValueError: naming the key, the rule and the value.

    Example:
        >>> check_epoch({"epoch": 1, "rate": "fast"})
        Traceback (most recent call last):
        ValueError: rate: must be a number, got 'fast'
    """
    _check(_Epoch, record, whole)


def check_moves(record: Mapping[str, Any], *, whole: bool = False) -> None:
    """Check a line of ``moves.jsonl``, as `check_epoch`."""
    _check(_Moves, record, whole)


def check_best(content: Mapping[str, Any], *, whole: bool = False) -> None:
    """Check the content of ``best.json``, as `check_epoch`."""
    _check(_Best, content, whole)


def check_result(content: Mapping[str, Any], *, whole: bool = False) -> None:
    """Check the content of ``result.json``, as `check_epoch`."""
    _check(_Result, content, whole)


def check_task(content: Mapping[str, Any]) -> None:
    """Check the content of ``task.json``, as `check_epoch`."""
    _check(_Task, content, whole=True)


def check_seal(content: Mapping[str, Any]) -> None:
    """Check what stands in ``seal.json``, as `check_epoch`."""
    _check(_Sealed, content, whole=True)


def check_manifest(content: Mapping[str, Any]) -> None:
    """Check what stands in the manifest of a checkpoint, as `check_epoch`."""
    _check(_Manifest, content, whole=True)


def _check(form: type[BaseModel], content: Mapping[str, Any], whole: bool) -> None:
    try:
        form.model_validate(content)
    except ValidationError as error:
        faults = [fault for fault in error.errors() if whole or fault["type"] != "missing"]
        if faults:
            raise ValueError(_told(faults[0])) from None


def _told(fault: Any) -> str:
    """Return key, rule and value of what pydantic says of one fault."""
    key = " ".join(".".join(map(str, fault["loc"])).split())[:100]
    if fault["type"] == "missing":
        return f"{key}: must be there"
    if fault["type"] == "value_error":  # a sentence of ours, with the value in it
        return f"{key or 'it'}: {fault['ctx']['error']}"
    value = repr(fault["input"])
    told = value if len(value) <= 60 else f"{value[:50]} ..."
    return f"{key or 'it'}: {_rule(fault)}, got {told}"


def _rule(fault: Any) -> str:
    """Return what must be, in our words where pydantic's are about its own classes."""
    told = {
        "extra_forbidden": "must not be there",
        "tuple_type": "must be a list",
        "too_long": "must be a list of another length",
        "string_pattern_mismatch": f"must match {fault.get('ctx', {}).get('pattern')}",
        "int_type": "must be an integer",
    }
    rule = fault["msg"].removeprefix("Input should be ")
    rule = re.sub("^(a )?valid ", "a ", rule).replace("dictionary", "table")
    return told.get(fault["type"], f"must be {rule.partition(' or instance')[0]}")
