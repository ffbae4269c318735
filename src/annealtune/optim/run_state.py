"""The one place that copies, swaps and puts back whatever belongs to a run.

That is weights, optimizer state, buffers and tensors that modules keep, parameters that a forward
writes, what hooks remember, and random state. Undoing a step by arithmetic (``w += lr * grad``)
leaves rounding errors in many weights, and re-pointing ``p.data`` pulls the storage away under
whoever else holds it. So values are copied before and copied back in place, bit for bit. `Snapshot`
undoes a step, `RunState` is an arm of a race, `Surroundings` is what a forward may change,
`PutAside` shows other weights for a while, `unchanged` puts back whatever an evaluation changes.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from annealtune.optim.context import Context, Part, StateError
from annealtune.optim.hooks import TORCHS_OWN, Hook, copied, hooks_of
from annealtune.optim.parameters import gathered, parameters_of, read

Pairs = list[tuple[Tensor, Tensor]]
Named = dict[str, Any]  # tensors by name, or None

_VERSION = operator.attrgetter("_version")  # it counts writes into a tensor
_GRADIENT = operator.attrgetter("grad")
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


class RandomState(NamedTuple):
    """The state of the default generators: torch's on every device in use, Python's and NumPy's."""

    cpu: Tensor
    cuda: tuple[Tensor, ...] = ()
    mps: Tensor | None = None
    python: Any = None
    numpy: Any = None

    @classmethod
    def capture(cls) -> RandomState:
        """Read all generators."""
        cuda = tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else ()
        mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
        numpy: Any = sys.modules.get("numpy.random")
        others = random.getstate(), None if numpy is None else numpy.get_state()
        return cls(torch.get_rng_state(), cuda, mps, *others)

    def state_dict(self) -> dict[str, Any]:
        """Return torch's part of it, as tensors."""
        return {"cpu": self.cpu, "cuda": self.cuda, "mps": self.mps}

    def restore(self) -> None:
        """Set all generators back."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        if self.mps is not None:
            torch.mps.set_rng_state(self.mps)
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)


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
    with kept(Copies(weights), Surroundings(modules), Flags(modules)):
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
        if tensors := list(tensors):
            self.take(tensors)

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
        """Write the copies into the tensors, also into one that was resized meanwhile."""
        for t, form in zip(self._tensors, self._forms, strict=True):
            if t.shape != form[0]:
                t.resize_(form[0])
        for group, copies in self._groups:
            _copy(group, copies)

    def add(self, pairs: Pairs) -> None:
        """Take tensors in whose copies are there."""
        for t, kept_copy in pairs:
            self._tensors = [*self._tensors, t]
            self._forms = [*self._forms, (t.shape, t.dtype, t.device)]
            self._groups = [*self._groups, ([t], [kept_copy])]

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every tensor and its copy."""
        for group, copies in self._groups:
            yield from zip(group, copies, strict=True)


class Surroundings:
    """What a forward may change besides the weights that are trained, as it is now.

    These are the buffers of modules, also those that it resizes, replaces or makes; tensors that
    modules keep as plain attributes (a hidden state), by which tensor it is; and parameters that it
    writes although nobody trains them (the EMA of a momentum encoder).

    Args:
        modules: whose tensors they are.
        written: the parameters.
        copied: whether their values are copied; else only which tensor is where is noted.
    """

    def __init__(
        self,
        modules: Iterable[nn.Module],
        written: Iterable[Tensor] = (),
        *,
        copied: bool = True,
    ) -> None:
        # Modules with their buffers, and with those of their attributes that are tensors, or may
        # become one.
        self._buffers: list[tuple[nn.Module, Named]] = []
        self._attributes: list[tuple[nn.Module, Named]] = []
        self._versions: list[tuple[str, Tensor, int]] = []  # of attributes
        self._lazy: list[nn.Module] = []  # whose buffers have no values yet
        tensors = list(written)
        for module in modules:
            if module._buffers:
                self._buffers.append((module, dict(module._buffers)))
                for buffer in module._buffers.values():
                    if buffer is not None and not is_out_of_reach(buffer):
                        tensors.append(buffer)
                    elif buffer is not None and torch.nn.parameter.is_lazy(buffer):
                        self._lazy.append(module)
            found: Named = {}
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    found[name] = value
                    self._versions.append((name, value, value._version))
                elif value is None and name not in TORCHS_OWN:
                    found[name] = None
            if found:
                self._attributes.append((module, found))
        self._copies = Copies(tensors) if tensors and copied else None
        self.is_empty = not (tensors or self._buffers or self._attributes)

    @classmethod
    def of(cls, context: Context) -> Surroundings:
        """Note those of a run."""
        return cls(context.model.modules(), context.written or ())

    def marks(self) -> list[float]:
        """Return numbers that change with the values of buffers."""
        copies = self.copies()
        values = [t for _, named in self._buffers for t in named.values() if t is not None]
        dense = [t for t in values if t.is_floating_point() and t.layout is torch.strided]
        floats = [copies.get(id(t), t) for t in dense if not is_out_of_reach(t)]
        return read(*torch._foreach_norm(floats)) if floats else []

    def put_back(self) -> None:
        """Make them what they were, also one that was replaced by a new tensor."""
        for module, noted in self._buffers:
            module._buffers.clear()
            module._buffers.update(noted)
        for module, noted in self._attributes:
            live = vars(module)
            for name, value in noted.items():
                if value is not None or isinstance(live.get(name), Tensor):
                    live[name] = value
        if self._copies is not None:
            self._copies.put_back()
        for lazy in self._lazy:
            if isinstance(lazy, _NormBase):
                lazy.reset_running_stats()

    def add(self, pairs: Pairs) -> None:
        """Note parameters too, with what they were."""
        known = self.copies()  # a run that was loaded has them already
        if self._copies is None:
            self._copies = Copies()
        self._copies.add([(t, then) for t, then in pairs if id(t) not in known])

    def overwritten(self) -> list[str]:
        """Return the names of attributes whose values were written in place: those are lost."""
        return [name for name, tensor, version in self._versions if tensor._version != version]

    def replaced(self, present: Surroundings) -> list[tuple[nn.Module, str, Tensor | None]]:
        """Return what is another tensor by now: the modules, the names and the tensors."""
        noted = self._noted()
        return [
            (module, name, tensor)
            for module, named in present._buffers + present._attributes
            for name, tensor in named.items()
            if noted.get((module, name), tensor) is not tensor
        ]

    def replace(self, module: nn.Module, name: str, tensor: Tensor | None) -> None:
        """Note another tensor."""
        for own, noted in self._buffers + self._attributes:
            if own is module and name in noted:
                noted[name] = tensor

    def _noted(self) -> dict[tuple[nn.Module, str], Tensor | None]:
        entries = self._buffers + self._attributes
        return {(module, name): t for module, named in entries for name, t in named.items()}

    def copies(self) -> dict[int, Tensor]:
        """Return what they were, by the id of the tensor."""
        pairs = () if self._copies is None else self._copies.pairs()
        return {id(tensor): kept for tensor, kept in pairs}

    def state_dict(self, model: nn.Module) -> Named:
        """Return copies of the tensors by name."""
        copies = self.copies()
        found = {name: copies[id(p)] for name, p in model.named_parameters() if id(p) in copies}
        places = {module: f"{place}." if place else "" for place, module in model.named_modules()}
        for (module, name), tensor in self._noted().items():
            if tensor is not None and not is_out_of_reach(tensor):
                found[places[module] + name] = copies.get(id(tensor), tensor)
        return {name: value.detach().clone() for name, value in found.items()}

    @torch.no_grad()
    def load_state_dict(self, model: nn.Module, state: Mapping[str, Tensor]) -> None:
        """Take the values of ``state_dict``; what has another shape by now is another tensor."""
        copies, modules = self.copies(), dict(model.named_modules())
        for full_name, value in state.items():
            place, _, name = full_name.rpartition(".")
            live = getattr(modules[place], name, None)
            moved = value.to(value.device if live is None else live.device, copy=True)
            if live is not None and id(live) in copies and copies[id(live)].shape == moved.shape:
                copies[id(live)].copy_(moved)
            elif isinstance(live, nn.Parameter):
                self.add([(live, moved)])
            else:
                self.replace(modules[place], name, moved)


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
    """The gradients of tensors as they are now, to be out of reach meanwhile.

    Args:
        tensors: whose gradients they are.
        copied: whether their values are put back too: DDP may keep them as views of its buckets,
            into which every backward writes.
    """

    def __init__(self, tensors: Iterable[Tensor], *, copied: bool = False) -> None:
        tensors = list(tensors)
        self._gradients = list(zip(tensors, map(_GRADIENT, tensors), strict=True))
        self._values: Copies | None = None
        if copied:
            self._values = Copies(g for _, g in self._gradients if g is not None)

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
        if self._values is not None:
            self._values.put_back()


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
        self._hooks: list[tuple[Hook, list[Any]]] = []

    @torch.no_grad()
    def take(self, *, gradients: bool = False, others: Iterable[Tensor] = ()) -> None:
        """Copy the present state.

        Args:
            gradients: whether to include them, for a base that writes into them.
            others: tensors that hooks write.
        """
        tensors = list(others)
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
        self._hooks = []
        optimizer = self._optimizer
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            self._hooks = [(hook, copied(hook.memory())) for hook in hooks_of(optimizer)]
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
        for hook, memory in self._hooks:
            hook.remember(copied(memory))
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

    def add(self, pairs: Pairs) -> None:
        """Take tensors in whose copies are there."""
        self._values.add(pairs)

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


class RunState:
    """A copy of everything that a training step changes, to be exchanged with the model's own.

    Weights and buffers are exchanged by copying values, so that whoever holds the tensors of the
    model goes on holding the right ones. The optimizer's state belongs to nobody else: there the
    tensors themselves change places.

    Args:
        context: the run.
        on_host: whether it lies in host memory.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> state = RunState(Context("SelfTuner", base, model))
        >>> before = model.weight.item()
        >>> _ = model.weight.data.fill_(2.0)
        >>> state.exchange()
        >>> model.weight.item() == before
        True
    """

    @torch.no_grad()
    def __init__(self, context: Context, *, on_host: bool = False) -> None:
        self._context = context
        self._base, self._model = context.base, context.model
        self._on_host = on_host
        self._weights = [self._stored(w) for w in parameters_of(self._base)]
        self._kept = self._away(copy.deepcopy(_optimizer_part(self._base, context.parameters)))
        self.around = Surroundings.of(context)
        self._memories = {hook: copied(hook.memory()) for hook in hooks_of(self._base)}

    @torch.no_grad()
    def exchange(self, then: Callable[[], None] | None = None) -> None:
        """Give the model this state and take the one it had; an interruption waits for the end.

        Args:
            then: notes who is where now; it may be called twice.
        """
        # How far it has come: what is incoming and outgoing besides the weights, how many weights
        # have changed places, and the next one. Every part can be made once more.
        progress: dict[Any, Any] = {"done": 0}
        try:
            self._carry_out(progress, then)
        except BaseException:
            self._carry_out(progress, then)
            raise

    def _carry_out(self, progress: dict[Any, Any], then: Callable[[], None] | None) -> None:
        """Do what is left of an exchange."""
        parameters = parameters_of(self._base)
        if "rest" not in progress:  # before the weights move: a buffer may be a view of one
            part = _optimizer_part(self._base, parameters)
            base = self._base
            has_hooks = base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
            hooks = hooks_of(base) if has_hooks else []
            progress["rest"] = (
                self._back(*self._kept) if self._on_host else self._kept[0],
                self._away(part) if self._on_host else (part, []),
                self.around,
                Surroundings(self._model.modules(), self._context.written or ()),
                [(h, self._memories.get(h, []), h.memory()) for h in hooks] if hooks else [],
            )
        while progress["done"] < len(parameters):
            number = progress["done"]
            ours = parameters[number]
            if number not in progress:
                outgoing = ours.detach().clone()
                outgoing = outgoing.cpu() if self._on_host else outgoing
                progress[number] = outgoing, self._weights[number]
            outgoing, incoming = progress[number]
            ours.copy_(incoming)
            self._weights[number] = outgoing
            progress["done"] = number + 1
            progress[number] = None
        part, self._kept, around, self.around, hooks = progress["rest"]
        _write_optimizer_part(self._base, parameters, part)
        around.put_back()
        for hook, memory, former in hooks:
            hook.remember(memory)
            self._memories[hook] = former
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
        parameters = parameters_of(self._base)
        for ours, theirs in zip(parameters, self._weights, strict=True):
            ours.copy_(theirs)
        part = copy.deepcopy(self._back(*self._kept))
        _write_optimizer_part(self._base, parameters, part)
        self.around.put_back()
        for hook in hooks_of(self._base):
            hook.remember(copied(self._memories.get(hook, [])))
        show_new_weights(self._model.modules())

    @torch.no_grad()
    def include(self, group: dict[str, Any]) -> None:
        """Take in a group that was added to the base; its weights are the same in every state."""
        self._weights += [self._stored(p) for p in group["params"]]
        options, devices = self._away({key: group[key] for key in group.keys() - {"params"}})
        self._kept[0]["options"].append(copy.deepcopy(options))
        self._kept[1].extend(devices)

    def set_option(self, number: int, option: str, value: Any) -> None:
        """Give the group of a number another value of an option."""
        self._kept[0]["options"][number][option] = copy.deepcopy(value)

    def _stored(self, tensor: Tensor) -> Tensor:
        kept = tensor.detach().clone()
        return kept.cpu() if self._on_host else kept

    def _away(self, part: dict[str, Any]) -> tuple[dict[str, Any], list[torch.device]]:
        """Bring the optimizer's part to where this state lies; return where its tensors belong."""
        devices: list[torch.device] = []

        def moved(tensor: Tensor) -> Tensor:
            devices.append(tensor.device)
            return tensor.cpu()

        return (tree_map_only(Tensor, moved, part) if self._on_host else part), devices

    def _back(self, part: dict[str, Any], devices: list[torch.device]) -> dict[str, Any]:
        if not self._on_host:
            return part
        places = iter(devices)
        moved: dict[str, Any] = tree_map_only(Tensor, lambda tensor: tensor.to(next(places)), part)
        return moved

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memories": {}}  # hooks stay with the original

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the tensors, and the optimizer's part."""
        return {
            "weights": [weight.clone() for weight in self._weights],
            "buffers": self.around.state_dict(self._model),
            "optimizer": copy.deepcopy(self._kept[0]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the state that was saved.

        Raises:
            StateError: if it has other weights.
        """
        self._check(state["weights"])
        for own, saved in zip(self._weights, state["weights"], strict=True):
            own.copy_(saved)
        self.around.load_state_dict(self._model, state["buffers"])
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

    def _check(self, saved: list[Tensor]) -> None:
        """Refuse the weights of another model."""
        own = parameters_of(self._base)
        shards, saved_shards = ([_shards(w) for w in weights] for weights in (own, saved))
        if [w.shape for w in saved] == [w.shape for w in own] and shards == saved_shards:
            return
        raise StateError(
            "SelfTuner.load_state_dict: the state of a race must come from a run with the same "
            f"weights, sharded over as many processes, here {len(own)} over {max(shards)}, got "
            f"{len(saved)} over {max(saved_shards, default=0)}; load it as it was saved, or save "
            "between races: opt.is_racing tells"
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


def _optimizer_part(base: Optimizer, parameters: list[Tensor]) -> dict[str, Any]:
    """Return the optimizer's state by the numbers of its parameters, and its options."""
    numbers = dict(zip(parameters, range(len(parameters)), strict=True))
    state: dict[Any, Any] = {}
    for key, entry in base.state.items():
        state[numbers.get(key, key)] = entry
    options = list(map(dict, base.param_groups))
    for group in options:
        del group["params"]
    return {"state": state, "options": options}


def _write_optimizer_part(base: Optimizer, parameters: list[Tensor], part: dict[str, Any]) -> None:
    """Give an optimizer the state and the options that `_optimizer_part` returned."""
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
        self._buffers = Surroundings(self._modules)
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
