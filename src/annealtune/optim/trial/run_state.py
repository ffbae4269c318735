"""One state of a run outside the model: weights, optimizer state and options, buffers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annealtune.optim.evaluation import guards
from annealtune.optim.parameters import modules_of, parameters_of


@dataclasses.dataclass
class _Exchange:
    """How far an exchange has come.

    Attributes:
        parts: that are done, three a tensor.
        moved: the tensor that is on its way.
        incoming: the optimizer's part that the base is given.
        outgoing: the one that it had before.
    """

    parts: int = 0
    moved: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))
    incoming: dict[str, Any] | None = None
    outgoing: dict[str, Any] | None = None


class RunState:
    """A copy of everything that a training step changes, to be exchanged with the model's own.

    Weights and buffers are exchanged by copying values, so that whoever holds the tensors of the
    model goes on holding the right ones. The optimizer's state belongs to nobody else: there the
    tensors themselves change places.

    Example:
        >>> weight = nn.Parameter(torch.ones(1))
        >>> base = torch.optim.SGD([weight], lr=0.1)
        >>> state = RunState(base, None)
        >>> _ = weight.data.fill_(2.0)
        >>> state.exchange()
        >>> weight.item()
        1.0
        >>> state.exchange()
        >>> weight.item()
        2.0
    """

    @torch.no_grad()
    def __init__(self, base: Optimizer, model: nn.Module | None, *, on_host: bool = False) -> None:
        self._base = base
        self._model = model
        self._on_host = on_host
        self._weights = [self._stored(w) for w in _weights(base)]
        self._buffers = {name: self._stored(b) for name, b in _buffers(base, model).items()}
        self._devices: list[torch.device] = []
        self._kept: dict[str, Any] = self._away(copy.deepcopy(optimizer_part(base)))

    @torch.no_grad()
    def exchange(self, then: Callable[[], None] | None = None) -> None:
        """Give the model this state and take the one it had; an interruption waits for the end.

        Args:
            then: notes who is where now; it may be called twice.
        """
        exchange = _Exchange()
        try:
            self._carry_out(exchange, then)
        except BaseException:
            self._carry_out(exchange, then)
            raise

    def _carry_out(self, exchange: _Exchange, then: Callable[[], None] | None) -> None:
        """Do what is left of an exchange; a part that was interrupted can be made once more."""
        pairs = self._pairs()
        while exchange.parts < 3 * len(pairs):
            ours, theirs = pairs[exchange.parts // 3]
            match exchange.parts % 3:
                case 0:
                    exchange.moved = ours.clone()
                case 1:
                    ours.copy_(theirs)
                case _:
                    theirs.copy_(exchange.moved)
            exchange.parts += 1
        if exchange.incoming is None:
            exchange.incoming = self._back(self._kept)
        if exchange.outgoing is None:
            exchange.outgoing = optimizer_part(self._base)
        write_optimizer_part(self._base, exchange.incoming)
        self._kept = self._away(exchange.outgoing)
        guards.show_new_weights(modules_of(self._model))
        if then is not None:
            then()

    @torch.no_grad()
    def put(self) -> None:
        """Give the model a copy of this state and forget the one it had, interrupted or not."""
        try:
            self._put()
        except BaseException:
            self._put()
            raise

    def _put(self) -> None:
        for ours, theirs in self._pairs():
            ours.copy_(theirs)
        write_optimizer_part(self._base, copy.deepcopy(self._back(self._kept)))
        guards.show_new_weights(modules_of(self._model))

    @torch.no_grad()
    def include(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Take in a group that was added to the base; its weights are the same in every state."""
        self._weights += [self._stored(p) for p in parameters]
        options = copy.deepcopy(_options(group))
        self._kept["options"].append(
            map_tensors(options, self._to_host) if self._on_host else options
        )

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Return the live tensors with our copies; a buffer that is new stays with the model."""
        present = _buffers(self._base, self._model)
        return [
            *zip(_weights(self._base), self._weights, strict=True),
            *(
                (present[name], kept)
                for name, kept in self._buffers.items()
                if name in present and present[name].shape == kept.shape
            ),
        ]

    def _stored(self, tensor: Tensor) -> Tensor:
        kept = tensor.detach().clone()
        return kept.cpu() if self._on_host else kept

    def _away(self, part: dict[str, Any]) -> dict[str, Any]:
        """Bring the optimizer's part to where this state lies."""
        if not self._on_host:
            return part
        self._devices = []
        moved: dict[str, Any] = map_tensors(part, self._to_host)
        return moved

    def _to_host(self, tensor: Tensor) -> Tensor:
        self._devices.append(tensor.device)
        return tensor.cpu()

    def _back(self, part: dict[str, Any]) -> dict[str, Any]:
        if not self._on_host:
            return part
        devices = iter(self._devices)
        moved: dict[str, Any] = map_tensors(part, lambda tensor: tensor.to(next(devices)))
        return moved

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the tensors, and the optimizer's part."""
        return {
            "weights": [weight.clone() for weight in self._weights],
            "buffers": {name: buffer.clone() for name, buffer in self._buffers.items()},
            "optimizer": copy.deepcopy(self._kept),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the state that was saved.

        Raises:
            ValueError: if it has other tensors.
        """
        check_state(self._base, self._model, state)
        for own, saved in zip(self._weights, state["weights"], strict=True):
            own.copy_(saved)
        live = _buffers(self._base, self._model)
        self._buffers = {
            name: self._stored(saved.to(live[name].device if name in live else saved.device))
            for name, saved in state["buffers"].items()
        }
        groups = [group for group in self._base.param_groups for _ in group["params"]]
        parameters = _weights(self._base)
        part = copy.deepcopy(state["optimizer"])
        for key, entry in part["state"].items():
            if isinstance(key, int) and isinstance(entry, dict):
                part["state"][key] = {
                    name: _placed(name, value, parameters[key], groups[key])
                    for name, value in entry.items()
                }
        self._kept = self._away(part)


def check_state(base: Optimizer, model: nn.Module | None, state: Mapping[str, Any]) -> None:
    """Refuse the state of another model."""
    own = [w.shape for w in _weights(base)]
    buffers = {name: b.shape for name, b in _buffers(base, model).items()}
    saved = {name: b.shape for name, b in state["buffers"].items() if name in buffers}
    same_buffers = all(buffers[name] == shape for name, shape in saved.items())
    shards, saved_shards = ([_shards(w) for w in ws] for ws in (_weights(base), state["weights"]))
    if shards != saved_shards and len(shards) == len(saved_shards):
        raise ValueError(
            "SelfTuner.load_state_dict: the state of a race must come from a run that was sharded "
            f"over as many processes, here {shards[0]}, got {saved_shards[0]}; load it as it was "
            "saved, or save between races: opt.is_racing tells"
        )
    if [w.shape for w in state["weights"]] != own or not same_buffers:
        raise ValueError(
            "SelfTuner.load_state_dict: the state of a race must come from a run with the same "
            f"weights and buffers, here {len(own)} weights, got {len(state['weights'])} of other "
            "shapes"
        )


def _placed(name: str, value: Any, parameter: Tensor, group: Mapping[str, Any]) -> Any:
    """Put a tensor of the optimizer's state where torch puts it: with its parameter, but for steps.

    Those lie on the CPU, unless the whole step runs on the device.
    """
    on_device = group.get("fused") or group.get("capturable")
    if not isinstance(value, Tensor) or (name == "step" and not on_device):
        return value
    return value.to(parameter.device)


def _shards(tensor: Tensor) -> int:
    """Return over how many processes a tensor is sharded."""
    mesh = getattr(tensor, "device_mesh", None)
    return 1 if mesh is None else int(mesh.size())


def _weights(base: Optimizer) -> list[Tensor]:
    """Return the live weights, to be written into."""
    return [p.detach() for p in parameters_of(base)]


def _buffers(base: Optimizer, model: nn.Module | None) -> dict[str, Tensor]:
    """Return the live buffers by name, without those that are views of weights or of others."""
    if model is None:
        return {}
    seen = {_storage(w) for w in _weights(base)}
    found: dict[str, Tensor] = {}
    for name, buffer in model.named_buffers():
        if not guards.is_out_of_reach(buffer) and _storage(buffer) not in seen:
            seen.add(_storage(buffer))
            found[name] = buffer
    return found


def live_tensors(base: Optimizer, model: nn.Module | None) -> list[Tensor]:
    """Return the live weights and buffers, to be written into, always in the same order."""
    return [*_weights(base), *_buffers(base, model).values()]


def _storage(tensor: Tensor) -> int:
    """Return where the values of a tensor, or of its shard here, lie; no values lie nowhere."""
    values = getattr(tensor, "_local_tensor", tensor)
    if values.layout is not torch.strided:
        return id(tensor)
    return values.untyped_storage().data_ptr() or id(tensor)


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def optimizer_part(base: Optimizer) -> dict[str, Any]:
    """Return the optimizer's state by the numbers of its parameters, and its options."""
    numbers = {p: n for n, p in enumerate(parameters_of(base))}
    state = {numbers.get(key, key): entry for key, entry in base.state.items()}
    return {"state": state, "options": [_options(group) for group in base.param_groups]}


def write_optimizer_part(base: Optimizer, part: dict[str, Any]) -> None:
    """Give an optimizer the state and the options that `optimizer_part` returned."""
    parameters = parameters_of(base)
    state: dict[Any, Any] = base.state
    state.clear()
    for key, entry in part["state"].items():
        state[parameters[key] if isinstance(key, int) else key] = entry
    for group, options in zip(base.param_groups, part["options"], strict=True):
        for key in group.keys() - options.keys() - {"params"}:
            del group[key]
        group.update(options)


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to every tensor within dicts, lists and tuples, always in the same order."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, function) for item in value)
    return value
