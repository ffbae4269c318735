"""The one place that copies, swaps and puts back: weights, optimizer state, buffers, random state.

Undoing a step by arithmetic (``w += lr * grad``) leaves rounding errors in many weights, and
re-pointing ``p.data`` pulls the storage away under whoever else holds it. So values are copied
before and copied back in place, bit for bit. `Snapshot` undoes a step, `RunState` is an arm of a
race, `PutAside` shows other weights for a while (the average, the best ones), and `unchanged` puts
back whatever an evaluation changes.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from annealtune.optim.context import Part, StateError
from annealtune.optim.parameters import gathered, parameters_of

Pairs = list[tuple[Tensor, Tensor]]

_VERSION = operator.attrgetter("_version")  # it counts writes into a tensor
_GRADIENT = operator.attrgetter("grad")
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


class RandomState(NamedTuple):
    """The state of torch's default generators: the CPU's and every initialised device's."""

    cpu: Tensor
    cuda: tuple[Tensor, ...] = ()
    mps: Tensor | None = None

    @classmethod
    def capture(cls) -> RandomState:
        """Read all generators."""
        cuda = tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else ()
        mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
        return cls(torch.get_rng_state(), cuda, mps)

    def restore(self) -> None:
        """Set all generators back."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        if self.mps is not None:
            torch.mps.set_rng_state(self.mps)


class Guard(Protocol):
    """Something as it is now, to be put back after an evaluation."""

    def put_back(self) -> None:
        """Make it what it was."""


@contextlib.contextmanager
def kept(*guards: Guard) -> Iterator[None]:
    """Put everything back at the end, interrupted or not."""

    def put_back() -> None:
        for guard in guards:
            guard.put_back()

    try:
        try:
            yield
        finally:
            put_back()
    except BaseException:
        put_back()  # once more: an interrupt can hit the first attempt
        raise


@contextlib.contextmanager
def unchanged(weights: Iterable[Tensor], modules: list[nn.Module]) -> Iterator[None]:
    """Put weights, buffers, training flags and random numbers back after an evaluation."""
    start = RandomState.capture()
    with kept(Copies(weights), Buffers(modules), Flags(modules)):
        try:
            yield
        finally:
            start.restore()
            show_new_weights(modules)


class Copies:
    """Copies of tensors, made and put back by one call for all of a device and type."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._tensors: list[Tensor] = []
        self._forms: list[Any] = []
        # Lists of one device and type, each with that of its copies; other kinds one by one.
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []
        self.take(list(tensors))

    @torch.no_grad()
    def take(self, tensors: list[Tensor]) -> None:
        """Copy tensors; where it is the same ones as the last time, nothing is allocated."""
        if not tensors:
            self._tensors, self._forms, self._groups = [], [], []
            return
        forms = []
        for t in tensors:
            forms.append((t.shape, t.dtype, t.device))  # noqa: PERF401 - called in every step
        if forms == self._forms and all(map(operator.is_, tensors, self._tensors)):
            for group, copies in self._groups:
                _copy(copies, group)
            return
        kinds: dict[Any, list[Tensor]] = {}
        for t in tensors:
            is_plain = type(t) in (Tensor, nn.Parameter)
            kinds.setdefault((t.device, t.dtype) if is_plain else id(t), []).append(t)
        self._forms, self._groups = [], []  # the old copies go before there are new ones
        self._groups = [(group, [t.detach().clone() for t in group]) for group in kinds.values()]
        self._tensors, self._forms = tensors, forms

    @torch.no_grad()
    def put_back(self) -> None:
        """Write the copies into the tensors."""
        for group, copies in self._groups:
            _copy(group, copies)

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every tensor and its copy."""
        for group, copies in self._groups:
            yield from zip(group, copies, strict=True)


class Buffers:
    """The buffers of modules as they are now."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._copies = Copies()
        self.take(modules)

    def take(self, modules: Iterable[nn.Module]) -> None:
        """Note them as they are now, into the copies that are there if it is the same ones."""
        self._entries: list[tuple[nn.Module, dict[str, Tensor | None]]] = []
        buffers: list[Tensor] = []
        for module in modules:
            if module._buffers:
                self._entries.append((module, dict(module._buffers)))
                buffers += [b for b in module._buffers.values() if b is not None]
        if self._entries:
            self._copies.take([b for b in buffers if not is_out_of_reach(b)])

    def put_back(self) -> None:
        """Make them what they were, also one that the forward replaced by a new tensor."""
        if not self._entries:
            return
        self._copies.put_back()
        for module, named in self._entries:
            module._buffers.clear()
            module._buffers.update(named)

    def copies(self) -> dict[int, Tensor]:
        """Return what they were, by the id of the tensor."""
        return {id(buffer): kept for buffer, kept in self._copies.pairs()}


class Flags:
    """The training flags of modules as they are now.

    They are set directly: ``Module.train`` may have side effects in subclasses.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        self._flags: list[tuple[nn.Module, bool, Any]] = []
        for module in modules:
            self._flags.append((module, module.training, vars(module).get("train")))

    def evaluate(self) -> None:
        """Switch to evaluation; ``train()``, with which many closures begin, does nothing then."""
        for module, *_ in self._flags:
            module.training = False
            vars(module)["train"] = functools.partial(_unmoved, module)

    def put_back(self) -> None:
        """Make them what they were."""
        for module, training, own_train in self._flags:
            if module.training != training:
                module.training = training
            if own_train is not None:
                vars(module)["train"] = own_train
            else:
                vars(module).pop("train", None)


def _unmoved(module: nn.Module, mode: bool = True) -> nn.Module:  # noqa: ARG001
    return module


class Gradients:
    """The gradients of tensors as they are now, to be out of reach meanwhile."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        self._gradients = list(zip(tensors, map(_GRADIENT, tensors), strict=True))

    def put_aside(self) -> None:
        """Let nobody write into them."""
        for t, _ in self._gradients:
            t.grad = None

    def show_zeros(self, tensor: Tensor) -> bool:
        """Give zeros to a tensor that had a gradient and has none; tell if it is one of ours."""
        for t, gradient in self._gradients:
            if t is tensor:
                if gradient is not None and t.grad is None:
                    t.grad = torch.zeros_like(t)
                return True
        return False

    def put_back(self) -> None:
        """Make them what they were."""
        for t, gradient in self._gradients:
            t.grad = gradient


def is_out_of_reach(tensor: Tensor) -> bool:
    """Tell a tensor that nobody can write into: one that is expanded, or has no values yet."""
    if torch.nn.parameter.is_lazy(tensor):
        return True
    if tensor.layout != torch.strided or 0 not in tensor.stride():
        return False
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return any(stride == 0 and size > 1 for stride, size in pairs)


def show_new_weights(modules: Iterable[nn.Module]) -> None:
    """Make the next forward see weights that were written in place."""
    # An autocast around all of it would go on using its casts of the former weights.
    torch.clear_autocast_cache()
    # FSDP gathers its weights anew only after a forward with gradients.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        for module in modules:
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()


def are_plain(tensors: list[Tensor]) -> bool:
    """Tell whether foreach knows them: subclasses, such as FSDP's sharded tensors, it does not."""
    return {Tensor, nn.Parameter}.issuperset(map(type, tensors))


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if len(targets) > 1 and are_plain(targets):
        torch._foreach_copy_(targets, sources)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


class Snapshot:
    """What an optimizer's step may change: parameters, per-parameter state, group options.

    The copies are allocated once and reused: the extra memory is one copy of the weights and one
    of the optimizer's state. Gradients are copied on request only, for a base that writes into
    them.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = torch.optim.SGD([weight], lr=0.1)
        >>> snapshot = Snapshot(optimizer)
        >>> snapshot.take()
        >>> weight.data += 1
        >>> snapshot.restore()
        >>> weight.item()
        1.0
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._values = Copies()
        self._gradient_values = Copies()
        self._has_gradients = False  # whether they are copied too
        self._gradients: list[tuple[Tensor, Tensor | None]] = []
        self._versions: list[tuple[Tensor, int]] = []  # of the gradients among them
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._state: dict[Any, Any] = {}

    @torch.no_grad()
    def take(self, *, gradients: bool = False) -> None:
        """Copy the present state; ``gradients`` are included for a base that writes into them."""
        tensors: list[Tensor] = []
        present: list[Tensor] = []
        self._groups, self._gradients = [], []
        for group in self._optimizer.param_groups:
            options = dict(group)
            del options["params"]
            self._groups.append((group, _noted(options, tensors)))
            for p in group["params"]:
                self._gradients.append((p, p.grad))
                if p.grad is not None:
                    present.append(p.grad)
                if p.requires_grad or p.grad is not None:
                    tensors.append(p)
        self._state = _noted(self._optimizer.state, tensors)
        self._values.take(tensors)
        self._has_gradients = gradients
        if gradients:
            self._gradient_values.take(present)
        self._versions = list(zip(present, map(_VERSION, present), strict=True))

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back in place; what was not there when it was taken is removed."""
        self._values.put_back()
        for p, gradient in self._gradients:
            if p.grad is not gradient:
                p.grad = gradient
        if self._has_gradients:
            self._gradient_values.put_back()
        for group, options in self._groups:
            for key in group.keys() - options.keys() - {"params"}:
                del group[key]
            group.update(_noted(options, []))  # a copy: what is put back can be put back again
        state: dict[Any, Any] = self._optimizer.state
        for key in [key for key in state if key not in self._state]:
            del state[key]
        for key, noted in self._state.items():
            entry = _noted(noted, [])
            if isinstance(entry, dict) and isinstance(state.get(key), dict):
                state[key].clear()
                state[key].update(entry)
            else:
                state[key] = entry

    def __getstate__(self) -> dict[str, Any]:
        return {"_optimizer": self._optimizer}  # the copies are for the next `restore` alone

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_optimizer"])  # type: ignore[misc]

    def release(self) -> None:
        """Let go of the gradients, so that ``zero_grad`` frees them; other copies are reused."""
        self._gradients, self._versions = [], []
        if self._has_gradients:
            self._forget_gradients()

    def gradients_are_untouched(self) -> bool:
        """Tell whether nothing was written into the gradients; if so, forget their copies.

        Where there are copies, values are compared too: a write through ``.data`` leaves the
        version as it was.
        """
        for gradient, version in self._versions:
            if gradient._version != version:
                return False
        if self._has_gradients:
            for gradient, copied in self._gradient_values.pairs():
                if not torch.equal(gradient, copied):
                    return False
            self._forget_gradients()
        return True

    def _forget_gradients(self) -> None:
        self._has_gradients = False
        self._gradient_values.take([])


def _noted(value: Any, tensors: list[Tensor]) -> Any:
    """Copy containers, keep tensors by reference and note them as to be copied."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return value
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        noted = {}
        for key, item in value.items():
            if isinstance(item, Tensor):
                tensors.append(item)
            elif not isinstance(item, _PLAIN):
                item = _noted(item, tensors)
            noted[key] = item
        return noted
    if type(value) in (list, tuple):
        return type(value)(_noted(item, tensors) for item in value)
    return copy.deepcopy(value)


class StateOutside:
    """What a base keeps elsewhere than in its state and groups, where nothing can undo it.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> StateOutside(torch.optim.SGD([weight])).refuse_changes("EmbeddedTuner")
    """

    # What can be undone; the defaults are read by nobody after the construction.
    _RESTORED = ("param_groups", "state", "defaults")

    def __init__(self, base: Optimizer) -> None:
        self._base = base
        self._before = self._numbers()

    def refuse_changes(self, owner: str) -> None:
        """Refuse a base whose step has changed a number or a tensor there."""
        now = self._numbers()
        for name in {**self._before, **now}:
            one, other = self._before.get(name), now.get(name)
            if isinstance(one, Tensor) and isinstance(other, Tensor):
                same = one.shape == other.shape and torch.equal(one, other)
            else:
                same = repr(one) == repr(other)  # NaN is NaN
            if not same:
                raise TypeError(
                    f"{owner}(base=...) must keep what its step changes in its state and its "
                    "parameter groups, or its steps could not be undone, got "
                    f"{type(self._base).__name__}, which keeps {name} elsewhere; take another "
                    "optimizer, or the one inside it"
                )

    def _numbers(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen = {id(getattr(self._base, name)) for name in self._RESTORED}
        _collect("", vars(self._base), found, seen)
        return found


def _collect(name: str, value: Any, found: dict[str, Any], seen: set[int]) -> None:
    """Walk through containers and optimizers; flags that something was said once do not count."""
    if isinstance(value, Tensor):
        found[name] = value.detach().clone()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found[name] = value
    elif isinstance(value, dict | list | tuple | Optimizer) and id(value) not in seen:
        seen.add(id(value))
        inside = vars(value) if isinstance(value, Optimizer) else value
        items = inside.items() if isinstance(inside, dict) else enumerate(inside)
        for number, (key, item) in enumerate(items):
            part = key if isinstance(key, str | int) else number
            _collect(f"{name}.{part}" if name else str(part), item, found, seen)


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
    moved: Tensor | None = None
    incoming: dict[str, Any] | None = None
    outgoing: dict[str, Any] | None = None


class RunState:
    """A copy of everything that a training step changes, to be exchanged with the model's own.

    Weights and buffers are exchanged by copying values, so that whoever holds the tensors of the
    model goes on holding the right ones. The optimizer's state belongs to nobody else: there the
    tensors themselves change places.

    Args:
        base: the optimizer.
        model: whose buffers belong to it.
        on_host: whether it lies in host memory.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> state = RunState(torch.optim.SGD(model.parameters(), lr=0.1), model)
        >>> before = model.weight.item()
        >>> _ = model.weight.data.fill_(2.0)
        >>> state.exchange()
        >>> model.weight.item() == before
        True
    """

    @torch.no_grad()
    def __init__(self, base: Optimizer, model: nn.Module, *, on_host: bool = False) -> None:
        self._base = base
        self._model = model
        self._on_host = on_host
        self._weights = [self._stored(w) for w in parameters_of(base)]
        self._buffers = {name: self._stored(b) for name, b in self._live_buffers().items()}
        self._devices: list[torch.device] = []
        self._kept: dict[str, Any] = self._away(copy.deepcopy(_optimizer_part(base)))

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
                    assert exchange.moved is not None
                    theirs.copy_(exchange.moved)
            exchange.parts += 1
        if exchange.incoming is None:
            exchange.incoming = self._back(self._kept) if self._on_host else self._kept
        if exchange.outgoing is None:
            exchange.outgoing = _optimizer_part(self._base)
        _write_optimizer_part(self._base, exchange.incoming)
        self._kept = self._away(exchange.outgoing) if self._on_host else exchange.outgoing
        show_new_weights(self._model.modules())
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
        _write_optimizer_part(self._base, copy.deepcopy(self._back(self._kept)))
        show_new_weights(self._model.modules())

    @torch.no_grad()
    def include(self, group: dict[str, Any]) -> None:
        """Take in a group that was added to the base; its weights are the same in every state."""
        self._weights += [self._stored(p) for p in group["params"]]
        options = copy.deepcopy({key: group[key] for key in group.keys() - {"params"}})
        self._kept["options"].append(
            tree_map_only(Tensor, self._to_host, options) if self._on_host else options
        )

    def _pairs(self) -> Pairs:
        """Return the live tensors with our copies; a buffer that is new stays with the model."""
        pairs = list(zip(parameters_of(self._base), self._weights, strict=True))
        if self._buffers:
            live = self._live_buffers()
            pairs += [
                (live[name], kept)
                for name, kept in self._buffers.items()
                if name in live and live[name].shape == kept.shape
            ]
        return pairs

    def _live_buffers(self) -> dict[str, Tensor]:
        """Return the live buffers by name, without those that are views of weights or of others."""
        seen = {_storage(w) for w in parameters_of(self._base)}
        found: dict[str, Tensor] = {}
        for name, buffer in self._model.named_buffers():
            if not is_out_of_reach(buffer) and _storage(buffer) not in seen:
                seen.add(_storage(buffer))
                found[name] = buffer
        return found

    def _stored(self, tensor: Tensor) -> Tensor:
        kept = tensor.detach().clone()
        return kept.cpu() if self._on_host else kept

    def _away(self, part: dict[str, Any]) -> dict[str, Any]:
        """Bring the optimizer's part to where this state lies."""
        if not self._on_host:
            return part
        self._devices = []
        moved: dict[str, Any] = tree_map_only(Tensor, self._to_host, part)
        return moved

    def _to_host(self, tensor: Tensor) -> Tensor:
        self._devices.append(tensor.device)
        return tensor.cpu()

    def _back(self, part: dict[str, Any]) -> dict[str, Any]:
        if not self._on_host:
            return part
        devices = iter(self._devices)
        moved: dict[str, Any] = tree_map_only(Tensor, lambda tensor: tensor.to(next(devices)), part)
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
            StateError: if it has other tensors.
        """
        live = self._live_buffers()
        self._check(state, live)
        for own, saved in zip(self._weights, state["weights"], strict=True):
            own.copy_(saved)
        self._buffers = {
            name: self._stored(saved.to(live[name].device if name in live else saved.device))
            for name, saved in state["buffers"].items()
        }
        groups = [group for group in self._base.param_groups for _ in group["params"]]
        parameters = parameters_of(self._base)
        part = copy.deepcopy(state["optimizer"])
        for key, entry in part["state"].items():
            if isinstance(key, int) and isinstance(entry, dict):
                part["state"][key] = {
                    name: _placed(name, value, parameters[key], groups[key])
                    for name, value in entry.items()
                }
        self._kept = self._away(part)

    def _check(self, state: Mapping[str, Any], live: Mapping[str, Tensor]) -> None:
        """Refuse the state of another model."""
        own, saved = parameters_of(self._base), state["weights"]
        shards, saved_shards = ([_shards(w) for w in weights] for weights in (own, saved))
        if shards != saved_shards and len(shards) == len(saved_shards):
            raise StateError(
                "SelfTuner.load_state_dict: the state of a race must come from a run that was "
                f"sharded over as many processes, here {shards[0]}, got {saved_shards[0]}; load it "
                "as it was saved, or save between races: opt.is_racing tells"
            )
        buffers = ((live[name], b) for name, b in state["buffers"].items() if name in live)
        same_buffers = all(one.shape == other.shape for one, other in buffers)
        if [w.shape for w in saved] != [w.shape for w in own] or not same_buffers:
            raise StateError(
                "SelfTuner.load_state_dict: the state of a race must come from a run with the same "
                f"weights and buffers, here {len(own)} weights, got {len(saved)} of other shapes"
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


def _storage(tensor: Tensor) -> int:
    """Return where the values of a tensor, or of its shard here, lie; no values lie nowhere."""
    values = getattr(tensor, "_local_tensor", tensor)
    if values.layout is not torch.strided:
        return id(tensor)
    return values.untyped_storage().data_ptr() or id(tensor)


def _optimizer_part(base: Optimizer) -> dict[str, Any]:
    """Return the optimizer's state by the numbers of its parameters, and its options."""
    parameters = parameters_of(base)
    numbers = dict(zip(parameters, range(len(parameters)), strict=True))
    state: dict[Any, Any] = {}
    for key, entry in base.state.items():
        state[numbers.get(key, key)] = entry
    options = list(map(dict, base.param_groups))
    for group in options:
        del group["params"]
    return {"state": state, "options": options}


def _write_optimizer_part(base: Optimizer, part: dict[str, Any]) -> None:
    """Give an optimizer the state and the options that `_optimizer_part` returned."""
    parameters = parameters_of(base)
    state: dict[Any, Any] = base.state
    state.clear()
    for key, entry in part["state"].items():
        state[parameters[key] if isinstance(key, int) else key] = entry
    for group, options in zip(base.param_groups, part["options"], strict=True):
        for key in group.keys() - options.keys() - {"params"}:
            del group[key]
        group.update(options)


class PutAside:
    """What the model holds now, to be put back after it has shown other weights.

    Args:
        part: is pending while others are shown.
        why: what the optimizer says then to those who call it.
        base: whose weights they are, if there is one.
        model: whose buffers are put aside too.
        pairs: weights and buffers, each with what it is given meanwhile; all others stay.
    """

    def __init__(
        self, part: Part, why: str, base: Optimizer | None, model: nn.Module, pairs: Pairs
    ) -> None:
        self._part = part
        self._why = why
        self._base = base
        self._model = model
        self._pairs = pairs
        self._kept = [(t, t.detach().clone()) for t, _ in pairs]
        shown = {id(t) for t, _ in pairs}
        self._unmoved = [(p, p.detach().clone()) for p in _own(base) if id(p) not in shown]
        self._modules = list(model.modules())
        self._buffers = Buffers(self._modules)
        self._goes_back: bool | None = None  # once that is known

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Give the model the other weights; afterwards it is bit for bit what it was."""
        with kept(self):
            self._begin()
            yield

    def show(self) -> PutAside:
        """Give the model the other weights until one of the methods below ends it."""
        try:
            self._begin()
        except BaseException:
            self.put_back()
            raise
        return self

    def _begin(self) -> None:
        self._part.pending = self._why
        write(self._pairs, self._modules)

    def put_back(self) -> None:
        """Make the model what it was."""
        write(self._kept, self._modules)
        self._buffers.put_back()
        self.leave()

    def put_back_unless_overwritten(self) -> None:
        """Make the model what it was, or leave it the weights that were loaded meanwhile."""
        if self._goes_back is None:  # an interrupted call is completed by the next
            self._goes_back = not self.is_overwritten()
        if self._goes_back:
            self.put_back()
        self.leave()

    def leave(self) -> None:
        """Leave the model what it has."""
        self._part.pending = ""

    @torch.no_grad()
    def is_overwritten(self) -> bool:
        """Tell whether the model has other weights than it was given.

        Buffers do not count: a forward may move them.
        """
        own = {id(p) for p in _own(self._base)}
        pairs = [(t, value) for t, value in self._pairs if id(t) in own] + self._unmoved
        return not all(are_equal(t, value.to(t.dtype)) for t, value in pairs)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the weights of the base and of the buffers of the model, by name."""
        put_aside = self._kept + self._unmoved
        former = self._buffers.copies() | {id(t): value for t, value in put_aside}
        live = named_tensors(self._base, self._model, others=False)
        return {name: former.get(id(t), t).detach().clone() for name, t in live.items()}


def named_tensors(
    base: Optimizer | None, model: nn.Module, *, others: bool = True
) -> dict[str, Tensor]:
    """Return the live weights and buffers by name, to be copied and written into.

    Weights of the base that the model does not have are named by a dot and their number.

    Args:
        base: whose weights belong to it, if there is one.
        model: whose weights and buffers belong to it.
        others: whether weights of the model that the base does not have belong to it too.
    """
    own = _own(base)
    wanted = set(map(id, own))
    named = {name: p for name, p in model.named_parameters() if others or id(p) in wanted}
    found: dict[str, Tensor] = {**named, **dict(model.named_buffers())}
    known = set(map(id, found.values()))
    found.update((f".{n}", p) for n, p in enumerate(own) if id(p) not in known)
    return {name: t for name, t in found.items() if not is_out_of_reach(t)}


def named_pairs(base: Optimizer | None, model: nn.Module, values: Mapping[str, Tensor]) -> Pairs:
    """Return the live weights and buffers with values of the same names and shapes."""
    live = named_tensors(base, model)
    return [
        (live[name], value)
        for name, value in values.items()
        if name in live and live[name].shape == value.shape
    ]


def check_named(
    owner: str, base: Optimizer | None, model: nn.Module, values: Mapping[str, Tensor]
) -> None:
    """Refuse the weights and buffers of another model; weights of later groups may be missing.

    Raises:
        StateError: if there are others, or of other shapes.
    """
    live = named_tensors(base, model)
    own = set(map(id, _own(base)))
    needed = {name for name, t in live.items() if id(t) in own and not name.startswith(".")}
    missing = needed - values.keys()
    unknown = {name for name in values.keys() - live.keys() if name.startswith(".")}
    shapes = {name: value.shape for name, value in values.items()}
    others = {name for name in shapes.keys() & live.keys() if live[name].shape != shapes[name]}
    if wrong := sorted(missing | unknown | others):
        raise StateError(
            f"{owner}.load_state_dict: the weights must be those of the same model, here "
            f"{len(live)} tensors, got {len(shapes)}; missing, unknown or of another shape: "
            f"{', '.join(wrong[:5])}"
        )


@torch.no_grad()
def write(pairs: Pairs, modules: Iterable[nn.Module]) -> None:
    """Write weights so that the next forward sees them."""
    for tensor, value in pairs:
        tensor.copy_(value)
    show_new_weights(modules)


@torch.no_grad()
def write_all(pairs: Pairs, model: nn.Module) -> None:
    """Write weights and buffers for good, all or none."""
    before = Copies(tensor for tensor, _ in pairs)
    try:
        write(pairs, model.modules())
    except BaseException:
        before.put_back()
        show_new_weights(model.modules())
        raise


def are_equal(one: Tensor, other: Tensor) -> bool:
    """Compare bit for bit, but NaN is NaN."""
    if torch.equal(one, other):
        return True
    return bool(gathered(((one == other) | (one.isnan() & other.isnan())).all()))


def _own(base: Optimizer | None) -> list[Tensor]:
    return [] if base is None else parameters_of(base)
