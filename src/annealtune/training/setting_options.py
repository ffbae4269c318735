"""Members of H that are written out one by one. Known without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from annealtune.training.options import BelowOne, Decay, Flag, Options, Rate, Share

Number = Annotated[float, Field(strict=True)]


def is_pair(value: Any) -> bool:
    """Tell whether a value has the form of two betas.

    Example:
        >>> is_pair([0.9, 0.999]), is_pair([0.9]), is_pair([[0.9, 0.999]])
        (True, False, False)
    """
    return _is_list(value) and len(value) == 2 and not any(map(_is_list, value))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _pair(value: Any) -> Any:
    if not is_pair(value):
        raise ValueError(f"must be a pair such as [0.9, 0.999], got {value!r}")
    return value


class SettingOptions(Options):
    """One member of H: a learning rate and options of the training loop."""

    lr: Decay
    label_smoothing: BelowOne | None = None
    dropout: BelowOne | None = None
    clip_norm: Rate | None = None
    augment_strength: Share | None = None

    def given(self) -> dict[str, Any]:
        """Return the options that it sets."""
        return {name: value for name, value in self if value is not None}


class SgdSetting(SettingOptions):
    """Beside these, options of torch.optim.SGD."""

    momentum: Decay | None = None
    dampening: Number | None = None
    weight_decay: Decay | None = None
    nesterov: Flag | None = None


class AdamwSetting(SettingOptions):
    """Beside these, options of torch.optim.AdamW."""

    weight_decay: Decay | None = None
    betas: Annotated[tuple[BelowOne, BelowOne], BeforeValidator(_pair)] | None = None
    eps: Decay | None = None
    amsgrad: Flag | None = None


def _tables(value: Any) -> Any:
    """Take a single table as a list of one."""
    if not _is_list(value) and not isinstance(value, Mapping):
        raise ValueError(f"must be tables such as [{{ lr = 0.1 }}, {{ lr = 0.01 }}], got {value!r}")
    return value if _is_list(value) else (value,)


SgdSettings = Annotated[tuple[SgdSetting, ...], BeforeValidator(_tables)]
AdamwSettings = Annotated[tuple[AdamwSetting, ...], BeforeValidator(_tables)]
