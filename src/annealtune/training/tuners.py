"""From the options of a method to the optimizer that anneals."""

from __future__ import annotations

import difflib
import math
from typing import Any

import torch
from torch import nn

from annealtune.annealing import STRATEGIES, Strategy
from annealtune.errors import ConfigError
from annealtune.optim import SGDSA, EmbeddedTuner, Shrinking, StochasticSA
from annealtune.optim.presets import preset_temperature
from annealtune.optim.sgd_sa import PAPER_COOLING_FACTOR, SCRIPT_FLOOR
from annealtune.training.annealed_options import (
    AdamwSaOptions,
    SgdSaOptions,
    SsaOptions,
    TunedOptions,
)
from annealtune.training.config import RunConfig
from annealtune.training.lookup import describe, import_factory, is_factory
from annealtune.training.loop import Loop
from annealtune.training.neighborhood_options import RandomRateOptions, begins
from annealtune.training.strategy_options import DEFAULT_STRATEGY, StrategyOptions


def build_tuner(
    config: RunConfig, model: nn.Module, loop: Loop, *, reads_outputs: bool
) -> EmbeddedTuner:
    """Build the optimizer of sgd-sa, adamw-sa or random-rate.

    Args:
        config: its method is one of these.
        model: whose parameters are trained.
        loop: what H may set besides the options of the optimizer.
        reads_outputs: whether the closure's outputs tell the error, if moves are judged by it.

    Raises:
        ConfigError: if options and model do not fit together.
    """
    options: Any = config.options
    assert isinstance(options, TunedOptions | RandomRateOptions)
    neighborhood = options.neighborhood()
    arguments: dict[str, Any] = {
        "neighborhood": neighborhood,
        "epochs": config.epochs,
        "seed": config.seeds["decision_seed"],
        "loop": loop.options(config.method, neighborhood, model),
    }
    if isinstance(options, RandomRateOptions):
        arguments["temperature"] = math.inf
    else:
        arguments["strategy"] = _strategy(config, options)
        arguments["accept_on"] = (
            "error" if reads_outputs and options.accept_on == "error" else "loss"
        )
        if arguments["strategy"] is None:
            arguments["temperature"] = options.schedule()
    preset = options.preset if isinstance(options, SgdSaOptions) else None
    if options.scales is None and not isinstance(options, AdamwSaOptions):
        return SGDSA(model, preset=preset, batch_size=config.batch_size, **arguments)
    if preset is not None:
        arguments["temperature"] = preset_temperature(
            "SGDSA",
            preset,
            arguments["temperature"],
            config.batch_size,
            PAPER_COOLING_FACTOR,
            SCRIPT_FLOOR,
        )
    kind = torch.optim.AdamW if isinstance(options, AdamwSaOptions) else torch.optim.SGD
    groups = parameter_groups(config.method, options.scales or {}, model)
    return EmbeddedTuner(
        kind(groups, lr=neighborhood[0]["lr"]),
        model=model,
        group_scales=options.scales,
        probe_in="eval" if preset == "paper-code" else "train",
        **arguments,
    )


def build_stochastic_sa(config: RunConfig, options: SsaOptions, model: nn.Module) -> StochasticSA:
    """Build the optimizer of ssa.

    Raises:
        ConfigError: if its strategy cannot be imported or does not fit.
    """
    below = options.shrink_below
    if below is None:
        below = Shrinking().below if options.preset == "paper-code" else 0.0
    strategy = _strategy(config, options)
    return StochasticSA(
        model,
        radius=Shrinking(options.radius, below=below, factor=options.shrink_factor),
        preset=options.preset,
        temperature=options.schedule() if strategy is None else None,
        strategy=strategy,
        epochs=config.epochs,
        batch_size=config.batch_size,
        scaling=options.scaling,
        seed=config.seeds["decision_seed"],
    )


def _strategy(config: RunConfig, options: StrategyOptions) -> Strategy | None:
    """Make the strategy; None is simulated annealing as the optimizer makes it itself."""
    if options.strategy == DEFAULT_STRATEGY:
        return None
    if not is_factory(options.strategy):
        return options.make_strategy(STRATEGIES[options.strategy], config.epochs)
    key = f"{config.method}.strategy"
    cls: Any = import_factory(key, options.strategy)
    if not isinstance(cls, type):
        raise ConfigError(f"{key} = {options.strategy!r}: must be a class, got {cls!r}")
    try:
        return options.make_strategy(cls, config.epochs)
    except Exception as error:  # the class is the user's: whatever it raises, say where
        raise ConfigError(f"{key} = {options.strategy!r}: {describe(error)}") from error


def parameter_groups(
    method: str, scales: dict[str, float], model: nn.Module
) -> list[dict[str, Any]]:
    """Return the parameters in groups: those of each scale under its name, the others before.

    Args:
        method: name of the block, for messages.
        scales: by the start of a parameter's name.
        model: whose parameters are meant.

    Raises:
        ConfigError: if a scale names no part of the model.
    """
    others: dict[str, Any] = {"params": []}
    named: dict[str, dict[str, Any]] = {start: {"params": [], "name": start} for start in scales}
    for name, parameter in model.named_parameters():
        start = next((start for start in scales if begins(name, start)), None)
        (others if start is None else named[start])["params"].append(parameter)
    for start, group in named.items():
        if not group["params"]:
            raise _no_part(f"{method}.scales", start, model)
    return [group for group in (others, *named.values()) if group["params"]]


def _no_part(key: str, start: str, model: nn.Module) -> ConfigError:
    names = [name.split(".") for name, _ in model.named_parameters()]
    parts = dict.fromkeys(".".join(name[:depth]) for depth in (1, 2) for name in names)
    near = difflib.get_close_matches(start, parts, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ConfigError(
        f"{key}: must be the start of a parameter's name, got {start!r}; {hint}The model has "
        f"{', '.join(dict.fromkeys(name[0] for name in names))}"
    )
