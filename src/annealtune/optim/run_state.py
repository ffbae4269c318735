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
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import (
    tree_flatten,
    tree_leaves,
    tree_map_only,
    tree_structure,
    tree_unflatten,
)

from annealtune.optim.context import Context, Part, StateError
from annealtune.optim.hooks import REMEMBERED, TORCHS_OWN, Hook, copied, same
from annealtune.optim.parameters import gathered, parameters_of, read

Pairs = list[tuple[Tensor, Tensor]]


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

    def put_back(self) -> None:
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


def carry_out(function: Callable[[], None]) -> None:
    """Call a function that may be called twice: again if it is interrupted."""
    try:
        function()
    except BaseException:
        function()
        raise


@contextlib.contextmanager
def kept(*guards: Any) -> Iterator[None]:
    """Put everything back at the end, interrupted or not; all of it has a ``put_back``."""

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
    try:
        with kept(RandomState.capture(), Surroundings(modules, weights), Flags(modules)):
            yield
    finally:
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
        forms = []
        for t in tensors:
            forms.append((t.shape, t.dtype, t.device))  # noqa: PERF401 - called in every step
        if forms == self._forms and all(map(operator.is_, tensors, self._tensors)):
            for group, copies in self._groups:
                _copy(copies, group)
            return
        kinds: dict[Any, list[Tensor]] = {}
        for t in tensors:
            is_plain = type(t) in (Tensor, nn.Parameter)  # foreach knows no shards, for instance
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

    These are the buffers of modules and the tensors that they keep as plain attributes (a hidden
    state), alone or in tuples and lists, also those that it resizes, replaces or makes; and
    parameters that it writes although nobody trains them (the EMA of a momentum encoder).

    Args:
        modules: whose tensors they are.
        others: further tensors, such as those parameters.
        copied: whether their values are copied; else only which tensor is where is noted.
    """

    def __init__(
        self, modules: Iterable[nn.Module], others: Iterable[Tensor] = (), *, copied: bool = True
    ) -> None:
        self._modules = list(modules)
        # By module and name: what is or holds tensors, or may do so later.
        self._noted: dict[tuple[nn.Module, str], Any] = {}
        # Which these are, and how often attributes were written: a loop may do that, for all arms.
        self._seen: dict[tuple[nn.Module, str], list[tuple[int, int]]] = {}
        tensors = list(others)
        for module in self._modules:
            for place in (module._buffers, vars(module)):
                for name, value in place.items():
                    if name in TORCHS_OWN or not isinstance(value, _MAY_HOLD):
                        continue
                    self._noted[module, name] = _row(value) if isinstance(value, _ROWS) else value
                    seen = self._seen[module, name] = []
                    for t in _tensors_in(value):
                        is_counted = place is not module._buffers and not t.is_inference()
                        seen.append((id(t), t._version if is_counted else 0))
                        if not is_out_of_reach(t):
                            tensors.append(t)
        self._copies = Copies(tensors) if tensors and copied else None
        self.is_empty = not (tensors or self._noted)

    @classmethod
    def of(cls, context: Context) -> Surroundings:
        """Note those of a run."""
        return cls(context.model.modules(), context.written or ())

    def marks(self) -> list[float]:
        """Return numbers that change with the values of buffers."""
        copies, floats = self.copies(), []
        for (module, name), t in self._noted.items():
            if name not in module._buffers or t is None or is_out_of_reach(t):
                continue
            if t.is_floating_point() and t.layout is torch.strided:
                floats.append(copies.get(id(t), t))
        return read(*torch._foreach_norm(floats)) if floats else []

    def put_back(self) -> None:
        """Make them what they were, also one that was made or replaced by a new tensor."""
        for module in self._modules:
            for place in (module._buffers, vars(module)):
                for name, now in tuple(place.items()):
                    may_hold = name not in TORCHS_OWN and isinstance(now, _MAY_HOLD)
                    if may_hold and (module, name) not in self._noted and _tensors_in(now):
                        del place[name]
        for (module, name), value in self._noted.items():
            place = module._buffers if name in module._buffers else vars(module)
            now = place.get(name)
            if now is not value and (_tensors_in(value) or _tensors_in(now)):
                then = _row(value) if isinstance(value, _ROWS) else value
                if type(now) is type(then) is list:
                    now[:] = then  # somebody else may hold the list
                else:
                    place[name] = then
        if self._copies is not None:
            self._copies.put_back()

    def add(self, pairs: Pairs) -> None:
        """Note further tensors, with what they were."""
        known = self.copies()  # a run that was loaded has them already
        if self._copies is None:
            self._copies = Copies()
        self._copies.add([(t, then) for t, then in pairs if id(t) not in known])

    def replaced(self, present: Surroundings) -> list[tuple[nn.Module, str]]:
        """Return where other tensors are by now."""
        return [place for place, seen in present._seen.items() if self._seen.get(place) != seen]

    def replace(self, places: list[tuple[nn.Module, str]], present: Surroundings) -> None:
        """Note what others have put there, as it was then."""
        known, copies = self.copies(), present.copies()
        for place in places:
            self._noted[place] = present._noted[place]
            for t in _tensors_in(self._noted[place]):
                own, then = known.get(id(t)), copies.get(id(t))
                if own is not None and then is not None and own.shape == then.shape:
                    own.copy_(then)
                elif then is not None:
                    self.add([(t, then.clone())])

    def copies(self) -> dict[int, Tensor]:
        """Return what they were, by the id of the tensor."""
        pairs = () if self._copies is None else self._copies.pairs()
        return {id(tensor): kept for tensor, kept in pairs}

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """Return copies of the tensors, and of rows of them, by name."""
        copies = self.copies()
        found: dict[str, Any] = {n: p for n, p in model.named_parameters() if id(p) in copies}
        places = {module: f"{place}." if place else "" for place, module in model.named_modules()}
        for (module, name), value in self._noted.items():
            if (tensors := _tensors_in(value)) and copies.keys() >= set(map(id, tensors)):
                found[places[module] + name] = value
        then = functools.partial(tree_map_only, Tensor, lambda t: copies[id(t)].clone())
        return {name: then(value) for name, value in found.items()}

    @torch.no_grad()
    def load_state_dict(self, model: nn.Module, state: Mapping[str, Any]) -> None:
        """Take the values of ``state_dict``; what has another shape by now is another tensor."""
        copies, modules = self.copies(), dict(model.named_modules())
        for full_name, value in state.items():
            place, _, name = full_name.rpartition(".")
            live = getattr(modules[place], name, None)
            there = functools.partial(Tensor.to, device=getattr(live, "device", None), copy=True)
            moved = tree_map_only(Tensor, there, value)
            known = copies.get(id(live))
            if known is not None and known.shape == getattr(moved, "shape", None):
                known.copy_(moved)
            elif isinstance(live, nn.Parameter):
                self.add([(live, moved)])
            else:
                self._noted[modules[place], name] = moved
                self.add([(t, t.clone()) for t in _tensors_in(moved)])


_ROWS = tuple, list
_MAY_HOLD = Tensor, tuple, list, type(None)
_PLAIN = frozenset({int, float, bool, str})  # rows of these are everywhere: strides, paddings


def _tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors that an attribute is or holds; a row of parameters belongs to others."""
    if isinstance(value, Tensor):
        return [value]
    if not isinstance(value, _ROWS) or _PLAIN.issuperset(map(type, value)):
        return []
    found = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return [] if any(isinstance(t, nn.Parameter) for t in found) else found


def _row(value: Any) -> Any:
    """Return a row that nobody else can change, of the same tensors."""
    if _PLAIN.issuperset(map(type, value)):
        return [*value] if type(value) is list else value
    return tree_unflatten(*tree_flatten(value))


class Flags:
    """The training flags of modules as they are now.

    They are set directly: ``Module.train`` may have side effects in subclasses.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
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
            vars(module).pop("train", None)
            if own_train is not None:
                vars(module)["train"] = own_train


def _unmoved(module: nn.Module, mode: bool = True) -> nn.Module:  # noqa: ARG001
    return module


class Gradients:
    """The gradients of tensors as they are now, to be put back.

    Args:
        tensors: whose gradients they are.
        copied: whether their values are put back too, where somebody may write into them: some
            bases do, and DDP where they are views of its buckets.
    """

    def __init__(self, tensors: Iterable[Tensor], *, copied: bool = False) -> None:
        # Each with its gradient and how often that was written.
        self._gradients: list[tuple[Tensor, Tensor | None, int]] = []
        for t in tensors:
            gradient = t.grad
            self._gradients.append((t, gradient, 0 if gradient is None else gradient._version))
        self._values: Copies | None = None
        if copied:
            self._values = Copies(g for _, g, _ in self._gradients if g is not None)

    def put_aside(self) -> None:
        """Let nobody write into them."""
        for t, *_ in self._gradients:
            t.grad = None

    def show_zeros(self, tensor: Tensor) -> bool:
        """Give zeros to a tensor whose gradient was put aside; tell whether the tensor is known."""
        for t, gradient, _ in self._gradients:
            if t is tensor:
                if gradient is not None and t.grad is None:
                    t.grad = torch.zeros_like(t)
                return True
        return False

    def put_back(self) -> None:
        """Make them what they were."""
        for t, gradient, _ in self._gradients:
            if t.grad is not gradient:
                t.grad = gradient
        if self._values is not None:
            self._values.put_back()

    def are_untouched(self) -> bool:
        """Tell whether nothing was written into them; if so, forget the copies.

        Where there are copies, values are compared too: a write through ``.data`` leaves the
        version as it was.
        """
        for _, gradient, version in self._gradients:
            if gradient is not None and gradient._version != version:
                return False
        if self._values is not None and not all(starmap(torch.equal, self._values.pairs())):
            return False
        self._values = None
        return True


def is_out_of_reach(tensor: Tensor) -> bool:
    """Tell a tensor that nobody can write into: expanded, or made in inference mode."""
    if tensor.layout != torch.strided or 0 not in tensor.stride():
        return tensor.is_inference()
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


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if len(targets) > 1:
        torch._foreach_copy_(targets, sources)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


class Snapshot:
    """What an optimizer's step may change: parameters, per-parameter state, group options.

    The copies are allocated once and reused: the extra memory is one copy of the weights and one
    of the optimizer's state. Gradients are copied on request only, for a base that writes into
    them.

    Attributes:
        gradients: those that were there.

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
        self.gradients = Gradients(())
        # The optimizer's part, taken to pieces.
        self._leaves: list[Any] = []
        self._form = tree_structure(None)
        self._memories: dict[Hook, list[Any]] = {}

    @torch.no_grad()
    def take(self, *, gradients: bool = False, others: Iterable[Tensor] = ()) -> None:
        """Copy the present state.

        Args:
            gradients: whether to include them, for a base that writes into them.
            others: tensors that hooks write.
        """
        tensors = list(others)
        parameters = parameters_of(self._optimizer)
        for p in parameters:
            if p.requires_grad or p.grad is not None:
                tensors.append(p)  # noqa: PERF401 - called in every step
        self.gradients = Gradients(parameters, copied=gradients)
        self._leaves, self._form = tree_flatten(_optimizer_part(self._optimizer, parameters))
        for number, leaf in enumerate(self._leaves):
            if isinstance(leaf, Tensor):
                tensors.append(leaf)
            else:
                self._leaves[number] = copy.deepcopy(leaf)
        self._memories = {}
        for hook in hooks_of(self._optimizer):
            self._memories[hook] = copied(hook.memory())
        self._values.take(tensors)

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back in place; what was not there when it was taken is removed."""
        self._values.put_back()
        self.gradients.put_back()
        for hook, memory in self._memories.items():
            hook.remember(copied(memory))
        part = tree_unflatten(self._leaves, self._form)
        _write_optimizer_part(self._optimizer, parameters_of(self._optimizer), part)

    def add(self, pairs: Pairs) -> None:
        """Take tensors in whose copies are there."""
        self._values.add(pairs)

    def __getstate__(self) -> dict[str, Any]:
        return {"_optimizer": self._optimizer}  # the copies are for the next `restore` alone

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_optimizer"])  # type: ignore[misc]

    def release(self) -> None:
        """Let go of the gradients, so that ``zero_grad`` frees them; other copies are reused."""
        self.gradients = Gradients(())


class StateOutside:
    """What a base keeps elsewhere than in its state and groups, where nothing can undo it.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> StateOutside(torch.optim.SGD([weight])).refuse_changes("EmbeddedTuner")
    """

    def __init__(self, base: Optimizer) -> None:
        self._base = base
        self._before = self._present()

    def refuse_changes(self, owner: str) -> None:
        """Refuse a base whose step has changed a number, a tensor or a container there."""
        now = self._present()
        for name in {**self._before, **now}:
            if not same(self._before.get(name), now.get(name)):
                raise TypeError(
                    f"{owner}(base=...) must keep what its step changes in its state and its "
                    "parameter groups, or its steps could not be undone, got "
                    f"{type(self._base).__name__}, which keeps {name} elsewhere; take another "
                    "optimizer, or the one inside it"
                )

    def _present(self) -> dict[str, Any]:
        """Return copies; flags that something was said once do not count."""
        found = {}
        for name, value in vars(self._base).items():
            if name in ("param_groups", "state", "defaults"):
                continue  # can be undone; the defaults are read by nobody after the construction
            inner = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Optimizer)]
            if states := [each.state for each in inner if each.state is not self._base.state]:
                found[f"{name}.state"] = copied(states)
            if isinstance(value, (*REMEMBERED, tuple)) and not isinstance(value, bool):
                found[name] = copied(value)
        return found


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
        self._on_host = on_host
        self.around: Surroundings
        self._weights: list[Tensor]
        self._part: dict[str, Any]
        self._memories: dict[Hook, list[Any]]
        vars(self).update(_owned(self._present()))

    def exchange(self, then: Callable[[], None] | None = None) -> None:
        """Give the model this state and take the one it had; an interruption waits for the end.

        Args:
            then: notes who is where now; it may be called twice.
        """
        carry_out(functools.partial(self._give, dict(vars(self)), self._present(), then))

    def put(self) -> None:
        """Give the model a copy of this state and forget the one it had, interrupted or not."""
        carry_out(functools.partial(self._give, _owned(vars(self)), {}))

    def _present(self) -> dict[str, Any]:
        """Return what the model has: copies of its weights, the optimizer's own tensors.

        All of it is taken before a weight moves, for a buffer may be a view of one.
        """
        base = self._context.base
        parameters, hooks = parameters_of(base), hooks_of(base)
        weights = map(Tensor.detach, parameters)
        part = _optimizer_part(base, parameters)
        if self._on_host:
            weights = map(Tensor.cpu, weights)
            part["state"] = tree_map_only(_is_large, Tensor.cpu, part["state"])
        return {
            "around": Surroundings(self._context.model.modules(), self._context.written or ()),
            "_weights": list(map(Tensor.clone, weights)),
            "_part": part,
            "_memories": dict(zip(hooks, map(Hook.memory, hooks), strict=True)),
        }

    @torch.no_grad()
    def _give(
        self,
        incoming: dict[str, Any],
        outgoing: dict[str, Any],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Write a state into the model, and keep another."""
        base = self._context.base
        parameters, part = parameters_of(base), incoming["_part"]
        for ours, theirs in zip(parameters, incoming["_weights"], strict=True):
            ours.copy_(theirs)
        _write_optimizer_part(base, parameters, _placed(base, part) if self._on_host else part)
        incoming["around"].put_back()
        for hook in {**incoming["_memories"], **outgoing.get("_memories", {})}:
            hook.remember(incoming["_memories"].get(hook, []))
        show_new_weights(self._context.model.modules())
        vars(self).update(outgoing)
        if then is not None:
            then()

    @torch.no_grad()
    def include(self, group: dict[str, Any]) -> None:
        """Take in a group that was added to the base; its weights are the same in every state."""
        place = "cpu" if self._on_host else None
        self._weights += [p.detach().to(place, copy=True) for p in group["params"]]
        options = {key: copy.deepcopy(group[key]) for key in group.keys() - {"params"}}
        self._part["options"].append(options)

    def set_option(self, number: int, option: str, value: Any) -> None:
        """Give the group of a number another value of an option."""
        self._part["options"][number][option] = copy.deepcopy(value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memories": {}}  # hooks stay with the original

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the tensors, and the optimizer's part."""
        return {
            "weights": [weight.clone() for weight in self._weights],
            "buffers": self.around.state_dict(self._context.model),
            "optimizer": copy.deepcopy(self._part),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the state that was saved.

        Raises:
            StateError: if it has other weights.
        """
        lists = self._weights, state["weights"]
        own, saved = (
            [(w.shape, getattr(w, "_local_tensor", w).shape) for w in weights] for weights in lists
        )
        if own != saved:
            raise StateError(
                "SelfTuner.load_state_dict: the state of a race must come from a run with the same "
                f"weights, sharded over as many processes, here {len(own)} weights, got "
                f"{len(saved)}; load it as it was saved, or save between races: opt.is_racing tells"
            )
        for weight, value in zip(*lists, strict=True):
            weight.copy_(value)
        self.around.load_state_dict(self._context.model, state["buffers"])
        self._part = _placed(self._context.base, copy.deepcopy(state["optimizer"]))


def _owned(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a state holds, with an optimizer's part and memories that nobody else has."""
    memories = {hook: copied(memory) for hook, memory in held["_memories"].items()}
    return {**held, "_part": copy.deepcopy(held["_part"]), "_memories": memories}


def hooks_of(base: Optimizer) -> list[Hook]:
    """Return the functions that a tuner has hooked on to the steps of its base."""
    before, after = base._optimizer_step_pre_hooks, base._optimizer_step_post_hooks
    if not (before or after):
        return []
    hooks: list[Any] = [*before.values(), *after.values()]
    return [hook for hook in hooks if isinstance(hook, Hook)]


def _optimizer_part(base: Optimizer, parameters: list[Tensor]) -> dict[str, Any]:
    """Return the optimizer's state by the numbers of its parameters, and its options."""
    numbers = dict(zip(map(id, parameters), range(len(parameters)), strict=True))
    state: dict[Any, Any] = {}
    for key, entry in base.state.items():
        state[numbers.get(id(key), key)] = entry
    options = list(map(dict, base.param_groups))
    for group in options:
        del group["params"]
    return {"state": state, "options": options}


def _write_optimizer_part(base: Optimizer, parameters: list[Tensor], part: dict[str, Any]) -> None:
    """Give an optimizer the state and the options that `_optimizer_part` returned."""
    state: dict[Any, Any] = base.state
    state.clear()
    for key, entry in part["state"].items():
        state[parameters[key] if key in range(len(parameters)) else key] = entry
    for group, options in zip(base.param_groups, part["options"], strict=True):
        for key in group.keys() - options.keys() - {"params"}:
            del group[key]
        group.update(options)


def _placed(base: Optimizer, part: dict[str, Any]) -> dict[str, Any]:
    """Put the optimizer's part where torch has it: with the parameters, but for single numbers.

    Those lie on the CPU, such as numbers of steps, unless the whole step runs on the device.
    """
    state = dict(part["state"])
    owners = [(p, group) for group in base.param_groups for p in group["params"]]
    for key in part["state"].keys() & range(len(owners)):
        p, group = owners[key]
        moved = Tensor if group.get("fused") or group.get("capturable") else _is_large
        state[key] = tree_map_only(moved, operator.methodcaller("to", p.device), state[key])
    return {**part, "state": state}


def _is_large(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


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
        self._modules = list(model.modules())
        self._before = Surroundings(self._modules, (t for t, _ in pairs))

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Give the model the other weights; afterwards it is bit for bit what it was."""
        with kept(self):
            self.show()
            yield

    def show(self) -> PutAside:
        """Give the model the other weights until one of the methods below ends it."""
        try:
            self._part.pending = self._why
            write(self._pairs, self._modules)
        except BaseException:
            self.put_back()
            raise
        return self

    def put_back(self) -> None:
        """Make the model what it was."""
        self._before.put_back()
        show_new_weights(self._modules)
        self.leave()

    def put_back_unless_overwritten(self) -> None:
        """Make the model what it was, or leave it the weights that were loaded meanwhile."""
        if not self.is_overwritten():
            carry_out(self.put_back)
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
        shown = [(t, value.to(t.dtype)) for t, value in self._pairs if id(t) in own]
        return not all(starmap(are_equal, shown))

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the weights of the base, and of what was put aside, by name."""
        former = {id(p): p for p in _own(self._base)} | self._before.copies()
        live = named_tensors(self._base, self._model)
        found = {name: former[id(t)] for name, t in live.items() if id(t) in former}
        return {name: value.detach().clone() for name, value in found.items()}


def named_tensors(base: Optimizer | None, model: nn.Module) -> dict[str, Tensor]:
    """Return the live weights and buffers by name, to be copied and written into.

    Weights of the base, if there is one, that the model does not have are named by a dot and their
    number.
    """
    found: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    known = set(map(id, found.values()))
    found.update((f".{n}", p) for n, p in enumerate(_own(base)) if id(p) not in known)
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
        StateError: if a name is unknown or missing, or a shape differs.
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


def are_equal(one: Tensor, other: Tensor) -> bool:
    """Compare bit for bit, but NaN is NaN."""
    if torch.equal(one, other):
        return True
    return bool(gathered(((one == other) | (one.isnan() & other.isnan())).all()))


def _own(base: Optimizer | None) -> list[Tensor]:
    return [] if base is None else parameters_of(base)
