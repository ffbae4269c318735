"""From a config to the method that makes its steps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler

from annealtune.annealing import STRATEGIES, Strategy
from annealtune.errors import ConfigError
from annealtune.optim import SGDSA, EmbeddedTuner, Shrinking, StochasticSA
from annealtune.training.config import RunConfig, blocks
from annealtune.training.factories import import_factory, in_one_line, is_factory

from .annealed import GradientFree, Tuned
from .method import Method
from .plain import build_plain
from .self_tuned import build_self_tuned


def build(
    config: RunConfig, model: nn.Module, steps_per_epoch: int, scaler: GradScaler | None
) -> Method:
    """Build the method of a config for a model.

    Args:
        config: names the method and holds its options.
        model: whose parameters are trained.
        steps_per_epoch: for schedules that follow the steps.
        scaler: scales the loss of fp16 runs.

    Raises:
        ConfigError: if options and model do not fit together.
    """
    options = config.options
    if isinstance(options, blocks.SelfTunedOptions):
        return build_self_tuned(options, model, config.epochs * steps_per_epoch, scaler)
    if isinstance(options, blocks.SsaOptions):
        return GradientFree(_stochastic_sa(config, options, model), options.objective)
    if isinstance(options, blocks.TunedOptions | blocks.RandomRateOptions):
        return _tuned(config, options, model, scaler)
    return build_plain(config, model, steps_per_epoch, scaler)


def _tuned(
    config: RunConfig,
    options: blocks.TunedOptions | blocks.RandomRateOptions,
    model: nn.Module,
    scaler: GradScaler | None,
) -> Tuned:
    neighborhood = options.neighborhood()
    arguments: dict[str, Any] = {
        "neighborhood": neighborhood,
        "epochs": config.epochs,
        "seed": config.seeds["decision_seed"],
    }
    on = "loss"
    if isinstance(options, blocks.TunedOptions):
        on = options.accept_on
        arguments["strategy"] = _strategy(config, options)
        if arguments["strategy"] is None:
            arguments["temperature"] = options.temperature
        if on == "error" and scaler is None:  # the closure's outputs tell it
            arguments["accept_on"] = "error"
    else:
        arguments["temperature"] = math.inf
    tuner: EmbeddedTuner
    if isinstance(options, blocks.AdamwSaOptions):
        base = torch.optim.AdamW(model.parameters(), lr=neighborhood[0]["lr"])
        tuner = EmbeddedTuner(base, model, **arguments)
    else:
        preset = options.preset if isinstance(options, blocks.SgdSaOptions) else None
        tuner = SGDSA(model, preset=preset, batch_size=config.batch_size, **arguments)
    return Tuned(tuner, on, scaler)


def _stochastic_sa(config: RunConfig, options: blocks.SsaOptions, model: nn.Module) -> StochasticSA:
    strategy = _strategy(config, options)
    return StochasticSA(
        model,
        radius=Shrinking(options.radius) if options.preset == "paper-code" else options.radius,
        preset=options.preset,
        temperature=options.temperature if strategy is None else None,
        strategy=strategy,
        epochs=config.epochs,
        batch_size=config.batch_size,
        seed=config.seeds["decision_seed"],
    )


def _strategy(config: RunConfig, options: blocks.AnnealingOptions) -> Strategy | None:
    """Make the strategy; None is simulated annealing as the optimizer makes it itself."""
    if options.strategy == blocks.DEFAULT_STRATEGY:
        return None
    if not is_factory(options.strategy):
        return options.make_strategy(STRATEGIES[options.strategy], config.epochs)
    key = f"{config.method}.strategy"
    cls: Any = import_factory(key, options.strategy)
    if not (isinstance(cls, type) and issubclass(cls, Strategy)):
        raise ConfigError(
            f"{key} = {options.strategy!r}: must be a class derived from "
            f"annealtune.strategies.Strategy, got {cls!r}"
        )
    try:
        return options.make_strategy(cls, config.epochs)
    except Exception as error:  # the class is the user's: whatever it raises, say where
        raise ConfigError(f"{key} = {options.strategy!r}: {in_one_line(error)}") from error
