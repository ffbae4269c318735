"""One minibatch: the two ways to tell it, and its loss at whatever weights the model has.

``f = opt.record(fn)`` wraps the function that computes the loss. Every call that leads to a
``backward`` is remembered until the next step: its arguments, the random state and the autocast
before it, and the factor that the caller applied to the loss (1 / accumulation steps, a
GradScaler's scale), which is the gradient that arrives at the loss. The other way is a closure.

`Intake.take` turns either into a minibatch: `first` makes sure that the gradient at the present
weights is in place, `again` computes loss and gradient anew, `evaluate` the loss alone. `Probe`
evaluates so that nothing changes by it.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from numbers import Real
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from annealtune.optim.context import Context, Watch
from annealtune.optim.parameters import gradients_of, has_gradient, parameters_of
from annealtune.optim.ranks import Exchanges, through
from annealtune.optim.run_state import (
    Flags,
    Gradients,
    RandomState,
    Surroundings,
    show_new_weights,
)

Function = TypeVar("Function", bound=Callable[..., Any])
Objective = Callable[[], Any]
ProbeMode = Literal["train", "eval"]

_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)
_NOT_REAL = (torch.bool, torch.complex32, torch.complex64, torch.complex128)
_IS_TRAINED = operator.attrgetter("requires_grad")
_READ_GRADIENT = vars(torch._C.TensorBase)["grad"].__get__


class Call:
    """One recorded computation of a loss.

    Args:
        context: the run.
        compute: makes the call once more.
        scaler: the GradScaler that scales the loss, if any.
        heard: is called when its backward begins; None if none is needed.
        finds_leaves: whether to find the tensors that its backward reaches.
    """

    def __init__(
        self,
        context: Context,
        compute: Callable[[], Any],
        scaler: Any,
        heard: Callable[[Call, Tensor], None] | None,
        *,
        finds_leaves: bool,
    ) -> None:
        self._owner = context.owner
        self._compute = compute
        self.scaler = scaler
        self._wrapper = DistributedDataParallel._active_ddp_module  # whose forward this is part of
        self.exchanges: Exchanges | None = None  # whether its gradient was to be exchanged
        self.start = RandomState.capture()
        devices = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
        # The precision that is on now.
        self._autocast = [
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in devices
        ]
        self.factor: Tensor | None = None  # None until its backward
        self.is_done = heard is None  # whether it had one
        self.carries = False  # whether it was given what an earlier call has returned
        node: Any = torch.ones((), requires_grad=True).clone().grad_fn
        began = node._sequence_nr()
        self.result = compute()
        if context.wrappers.modules:  # the forward may have been the first to show one
            self.exchanges = context.wrappers.present()
        loss = _recorded_loss(self._owner, self.result)
        self.leaves, is_older = leaves_of(loss, began) if finds_leaves else ([], False)
        if is_older:
            raise ValueError(
                f"{self._owner}.record(fn): the function must contain the whole forward, for it is "
                "called again at other weights, got a loss of something that was computed before; "
                "record a function of the inputs, and detach what is not trained through"
            )
        self.loss = loss.detach()  # lets go of the graph when the caller does
        if heard is None:
            self.factor = torch.ones_like(self.loss)
        elif loss.requires_grad:
            loss.register_hook(functools.partial(heard, self))
        else:
            raise ValueError(
                f"{self._owner}.record(fn): the loss must depend on parameters that require a "
                f"gradient, got {loss!r}"
            )

    def again(self) -> Tensor:
        """Compute the loss at the weights as they are now, with the same random numbers."""
        with contextlib.ExitStack() as stack:
            for device, enabled, dtype in self._autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            self.start.put_back()
            compute, wrapper = self._compute, self._wrapper
            loss: Tensor = loss_in(compute() if wrapper is None else through(wrapper, compute))
            return loss


def leaves_of(loss: Any, began: int = 0) -> tuple[list[Tensor], bool]:
    """Return the tensors to whose gradients a backward of a loss adds.

    Args:
        loss: with its graph.
        began: the number of a node.

    Returns:
        The tensors, and whether the graph has nodes that were made before that one.
    """
    found, seen, is_older = [], set(), False
    ahead = [loss.grad_fn] if isinstance(loss, Tensor) else []
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for following, _ in node.next_functions:
            ahead.append(following)
        leaf = getattr(node, "variable", None)
        if not node.next_functions and isinstance(leaf, Tensor):
            found.append(leaf)
        elif node._sequence_nr() < began:
            is_older = True
    return found, is_older


class Minibatch:
    """What can be computed of a minibatch; this one is a gradient of which nothing else is known.

    That is enough for a plain step.

    Attributes:
        returned: what the step returns: the loss as the caller knows it.
        start: the random state before its first forward.
        scale: what the GradScaler, if any, multiplies its loss by; None without one.
        result: what the closure, if there is one, returned.
        was_touched: whether somebody has written into its gradients since their backward.
        carries: whether it was given a tensor that a call for an earlier minibatch has returned.
    """

    result: Any = None
    scale: float | None = None
    start = RandomState(torch.empty(0))
    was_touched = False
    carries = False

    def __init__(self, context: Context, losses: list[Tensor]) -> None:
        self._context = context
        self._losses = losses
        self._leaves: list[Tensor] = []  # to whose gradients its backward adds
        self.returned: Any = losses[0] if len(losses) == 1 else None

    def other_gradients(self) -> Gradients:
        """Return the gradients of everything that it reaches and the base does not have."""
        context = self._context
        others = dict.fromkeys([*context.model.parameters(), *self._leaves])
        for p in parameters_of(context.base):
            others.pop(p, None)
        copied = bool(context.wrappers.modules) and context.wrappers.have_views
        return Gradients(others, copied=copied)

    def first(self) -> list[Tensor]:
        """Have the gradient at the present weights in place; return the losses it is made of."""
        return self._losses

    def compared(self) -> Tensor:
        """Return the loss of `first` in the unit of `again` and `evaluate`."""
        raise NotImplementedError

    def again(self) -> Tensor:
        """Compute loss and gradient at the present weights, with the same random numbers."""
        raise NotImplementedError

    def evaluate(self) -> Any:
        """Compute the loss at the present weights, without gradients."""
        raise NotImplementedError


class ClosureMinibatch(Minibatch):
    """A closure, which may call ``zero_grad`` and ``backward`` itself or leave that to us.

    Args:
        context: the run.
        closure: computes the loss.
        intake: hears of its forward, and of gradients that are made for it.
    """

    def __init__(self, context: Context, closure: Callable[[], Any], intake: Intake) -> None:
        if not callable(closure):
            raise not_callable(context.owner, "closure", closure)
        super().__init__(context, [])
        self._closure = closure
        self._intake = intake
        if intake.replays:
            self.start = RandomState.capture()

    def first(self) -> list[Tensor]:
        """Run the closure and make the gradient if it did not."""
        with self._intake.forward() if self._intake.replays else contextlib.nullcontext():
            self.returned = self._run()
        return [self.returned]

    def compared(self) -> Tensor:
        """Return the loss."""
        loss: Tensor = self.returned
        return loss

    def again(self) -> Tensor:
        """Run it again, from the same random numbers."""
        self._context.base.zero_grad()
        self.start.put_back()
        return self._run()

    def evaluate(self) -> Any:
        """Run it again."""
        return self._closure()

    def _run(self) -> Tensor:
        """Run the closure; make the gradient of its loss if it did not."""
        base, owner = self._context.base, self._context.owner
        # The tensors themselves are held: the address of one that is gone may be used again.
        before = []
        for p in parameters_of(base):
            gradient = p.grad
            before.append((p, gradient, None if gradient is None else gradient._version))
        with torch.enable_grad():
            self.result = self._closure()
        loss = loss_in(self.result)
        detached = as_loss(owner, "closure", loss)
        if self._intake.notes and self._intake.replays and not self._leaves:
            self._leaves, _ = leaves_of(loss)
        for p, gradient, version in before:
            if p.grad is not None and (p.grad is not gradient or p.grad._version != version):
                return detached
        del before, gradient
        if not (isinstance(loss, Tensor) and loss.requires_grad):
            raise ValueError(
                f"{owner}.step(closure): the closure must return a loss that depends on parameters "
                f"which require a gradient, or call backward itself, got {loss!r}"
            )
        base.zero_grad()
        with torch.enable_grad():
            loss.backward()
        self._intake.has_made_gradients = True
        return detached


class RecordedMinibatch(Minibatch):
    """The recorded calls whose gradients are in place.

    Args:
        context: the run.
        calls: since the last step.
        intake: knows what to call when a gradient was made here.
    """

    def __init__(self, context: Context, calls: list[Call], intake: Intake) -> None:
        super().__init__(context, list(map(operator.attrgetter("loss"), calls)))
        self._calls = calls
        for call in calls:
            self._leaves += call.leaves
            self.carries = self.carries or call.carries
        self._intake = intake
        self.start = calls[0].start
        scaler = calls[0].scaler
        self.scale = scaler.get_scale() if scaler is not None and scaler.is_enabled() else None
        if intake.notes and not intake.after_replay:  # which does the same to the other arms
            self.was_touched = intake.was_touched()

    def compared(self) -> Tensor:
        """Return the sum of the losses, each times the factor that its caller applied."""
        return self._sum(self._losses)

    def again(self) -> Tensor:
        """Make every call again, with its factor."""
        self._context.base.zero_grad()
        losses = []
        for call in self._calls:
            alike = call.exchanges.again() if call.exchanges else contextlib.nullcontext()
            with torch.enable_grad(), alike:
                loss = call.again()
                loss.backward(gradient=call.factor)
            losses.append(loss.detach())
        if self.scale is not None and (gradients := gradients_of(self._context.base)):
            torch._foreach_mul_(gradients, 1.0 / self.scale)
        for function in self._intake.after_replay.values():
            function()
        return self._sum(losses)

    def evaluate(self) -> Tensor:
        """Make every call again, without gradients; return the sum."""
        return self._sum([call.again().detach() for call in self._calls])

    def _sum(self, losses: list[Tensor]) -> Tensor:
        scale = 1.0 if self.scale is None else self.scale
        total: Any = None
        for call, loss in zip(self._calls, losses, strict=True):
            assert call.factor is not None
            part = loss.reshape(()) * (call.factor.reshape(()) / scale)
            total = part if total is None else total + part
        return total  # type: ignore[no-any-return]


class Intake:
    """Takes in the minibatch of a step, whichever way the caller tells it.

    Args:
        context: the run.
        notes: whether to note what surrounds the weights before the forward.
        differentiates: whether only recorded calls count that lead to a backward.

    Attributes:
        replays: whether losses are computed again: recorded calls keep a minibatch alive.
        paused: whether nothing is remembered at the moment.
        before: the surroundings before the forward of this minibatch, if they are noted.
        after_replay: functions to call after each gradient that is made here.
    """

    def __init__(
        self, context: Context, *, notes: bool = False, differentiates: bool = True
    ) -> None:
        self._context = context
        self.notes = notes
        self._differentiates = differentiates
        self._calls: list[Call] = []
        self._losses: list[Tensor] = []  # of calls that need not be repeated
        self.paused = False
        self.replays = True
        self.before: Surroundings | None = None
        self.after_replay: OrderedDict[int, Callable[[], Any]] = OrderedDict()
        self.has_made_gradients = False  # for a closure that did not
        # What the last backward of a recorded call has left: parameters, the ids of their gradients
        # and how often those were written. Held, they would outlive zero_grad.
        self._left: list[tuple[Tensor, int, int]] = []
        # Storages that recorded calls have made and returned, as far as somebody has them.
        self._returned: list[weakref.ref[Any]] = []

    def record(self, function: Function, scaler: Any = None) -> Function:
        """Return a function that does the same and is remembered.

        Raises:
            TypeError: if it is no function, or the scaler no GradScaler.
        """
        owner = self._context.owner
        if not callable(function):
            raise TypeError(f"{owner}.record(fn) must be given a function, got {function!r}")
        if scaler is not None and not hasattr(scaler, "get_scale"):
            raise TypeError(
                f"{owner}.record(fn, scaler=...) must be a torch.amp.GradScaler, got {scaler!r}"
            )

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self.paused or not torch.is_grad_enabled():
                return function(*args, **kwargs)
            if not self.replays:
                result = function(*args, **kwargs)
                loss = _recorded_loss(owner, result)
                if loss.requires_grad:  # one of a validation says nothing of the run
                    value = loss.detach()
                    loss.register_hook(lambda _: self._losses.append(value))
                return result
            return self._remembered(functools.partial(function, *args, **kwargs), scaler)

        return recorded  # type: ignore[return-value]

    def _remembered(self, compute: functools.partial[Any], scaler: Any) -> Any:
        heard = self._hear if self._differentiates else None
        finds_leaves = self.notes or self._context.written is None
        given = _storages((compute.args, compute.keywords)) if self.notes else {}
        try:
            self.paused = True  # a recorded function that it calls is a part of it
            with self.forward():
                call = Call(self._context, compute, scaler, heard, finds_leaves=finds_leaves)
        finally:
            self.paused = False
        if self.notes:
            known = set(map(id, map(operator.call, self._returned)))
            call.carries = not known.isdisjoint(given)
            made = _storages(call.result)
            for key in given:
                made.pop(key, None)
            self._returned += map(weakref.ref, made.values())
        self._calls.append(call)
        result, call.result = call.result, None
        return result

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Note what a forward of the loop starts from, and find out what it touches."""
        context = self._context
        if self.notes and not self._calls:
            self.before = Surroundings(context.model.modules(), context.written or ())
        is_first, watch = context.written is None, None
        if is_first or not all(map(_IS_TRAINED, context.model.parameters())):
            watch = Watch(context, is_first=is_first)
        notice: AbstractContextManager[Any] = contextlib.nullcontext()
        if distributed.is_available() and distributed.is_initialized():
            notice = context.model.register_forward_pre_hook(context.wrappers.notice)
        try:
            with notice:
                yield
        finally:
            pairs = [] if watch is None else watch.written()
            if self.before is not None and pairs:
                self.before.add(pairs)

    def _hear(self, call: Call, gradient: Tensor) -> None:
        """Hear that the backward of a call begins."""
        if len(self._calls) > 1 and self.was_touched() and not has_gradient(self._context.base):
            self.forget_done()  # model.zero_grad() tells nobody: a step was skipped
        before = call.factor  # of another backward of the same loss: gradients add up
        call.factor = gradient.detach().clone() if before is None else before + gradient.detach()
        call.is_done = True
        # When this backward is over, and DDP and FSDP2 have done their part.
        queue = torch.autograd.Variable._execution_engine.queue_callback
        queue(functools.partial(queue, self._note_left))

    def _note_left(self) -> None:
        self._left = []
        for p in parameters_of(self._context.base):
            gradient = p.grad
            self._left.append((p, id(gradient), 0 if gradient is None else gradient._version))

    def was_touched(self) -> bool:
        """Tell whether gradients were written since the backward; a GradScaler leaves no mark."""
        for p, gradient, version in self._left:
            if id(p.grad) != gradient or (p.grad is not None and p.grad._version != version):
                return True
        return False

    def take(self, closure: Callable[[], Any] | None) -> Minibatch:
        """Return the minibatch of this step, told by a closure or by recorded calls.

        Raises:
            TypeError: if its loss must be computed again and nothing tells how.
        """
        context = self._context
        if distributed.is_available() and distributed.is_initialized():
            context.wrappers.refuse_join(context.owner)
            context.ranks.begin()
        calls, losses = self._calls, self._losses
        self._calls, self._losses = [], []
        if closure is not None:
            _refuse_lightning(context.owner, closure)
            if self.has_made_gradients:  # free them before the next forward
                context.base.zero_grad()
                self.has_made_gradients = False
            return ClosureMinibatch(context, closure, self)
        if not self.replays:
            return Minibatch(context, losses)
        calls = list(filter(operator.attrgetter("is_done"), calls))
        if not calls:
            raise TypeError(
                f"{context.owner}.step() must be given a closure, or follow a call of a recorded "
                "function that led to a backward, got neither since the last step (calls under "
                "torch.no_grad() do not count); wrap the function by compute_loss = opt.record(fn) "
                "and call compute_loss(...).backward() before step(), or call step(closure)"
            )
        return RecordedMinibatch(context, calls, self)

    def register_after_replay(self, function: Callable[[], Any]) -> RemovableHandle:
        """Have a function called after each gradient that is made here."""
        handle = RemovableHandle(self.after_replay)
        self.after_replay[handle.id] = function
        return handle

    def set_replays(self, replays: bool) -> None:
        """Tell whether losses are computed again from here on; if not, keep no minibatch alive."""
        self.replays = replays
        if not replays:
            self.before, self._left, self._returned = None, [], []

    def forget_done(self) -> None:
        """Drop calls whose gradients will be zeroed: they belong to a step that was skipped.

        Calls without a backward stay: many loops reset gradients between forward and backward.
        """
        if not self.paused and (self._calls or self._losses):
            self._calls = [call for call in self._calls if not call.is_done]
            self._losses = []

    def __getstate__(self) -> dict[str, Any]:
        # Functions of the loop stay with the original, as hooks do.
        own: dict[str, Any] = {"_calls": [], "_losses": [], "_left": [], "_returned": []}
        own |= {"paused": False, "after_replay": OrderedDict(), "before": None}
        return {**self.__dict__, **own}


def _storages(tree: Any) -> dict[int, Any]:
    """Return the storages of the tensors in it, by their ids."""
    found = {}
    for leaf in tree_leaves(tree):
        if type(leaf) is Tensor and leaf.layout is torch.strided:
            storage = leaf.untyped_storage()
            found[id(storage)] = storage
    return found


class _WithoutBackward(TorchFunctionMode):
    """Skip ``backward``, which a closure may call itself: the gradient that counts is made.

    A closure that clips or logs gradients after its ``backward`` finds zeros, made when it looks.

    Raises:
        RuntimeError: if it differentiates for the sake of its loss, as a gradient penalty or
            adversarial training does; so does torch itself, without gradients.
    """

    def __init__(self, gradients: Gradients) -> None:
        super().__init__()
        self._gradients = gradients
        self._skipped = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD:
            self._skipped = True
            return None
        if func is torch.autograd.grad or (
            self._skipped and func == _READ_GRADIENT and not self._gradients.show_zeros(args[0])
        ):
            raise RuntimeError("the closure differentiates to compute its loss")
        return func(*args, **(kwargs or {}))


class Probe:
    """Evaluations of the same minibatch, with the same random numbers, that change nothing.

    Whatever runs inside `replay` draws the random numbers that the first forward drew (dropout
    repeats its mask) and leaves buffers, gradients, training flags and random number generators as
    they were.

    Args:
        context: the run.
        mode: ``"train"`` evaluates the model as it is, ``"eval"`` in evaluation mode.

    Attributes:
        differentiates: whether the loss takes gradients to compute.

    Raises:
        ValueError: if the mode is unknown.
    """

    def __init__(self, context: Context, mode: ProbeMode) -> None:
        if mode not in ("train", "eval"):
            raise ValueError(
                f"{context.owner}(probe_in=...) must be 'train' or 'eval', got {mode!r}"
            )
        self._context = context
        self.mode = mode
        self.differentiates = False
        # Of the evaluation under way: what is to be put back, and what skips backward.
        self._guards: tuple[Any, ...] = ()
        self._skip: _WithoutBackward | None = None

    @contextlib.contextmanager
    def plain_forward(self) -> Iterator[None]:
        """Run a closure without gradients, leaving what its forward leaves."""
        try:
            self._begin()
            skip = self._skip = _WithoutBackward(Gradients(self._context.model.parameters()))
            with torch.no_grad(), skip:
                yield
        finally:
            self.end()

    @contextlib.contextmanager
    def replay(
        self, start: RandomState, *, weights: bool = False, closure: bool = False
    ) -> Iterator[None]:
        """Evaluate from the random state ``start``; afterwards everything is as before.

        Gradients are None inside, so that a closure's ``zero_grad`` cannot touch the real ones.

        Args:
            start: random state of the first forward.
            weights: whether weights are put back too, at the price of a copy: a closure only reads
                them, a function that somebody wrote for the accept test may try others.
            closure: whether it is one, written for training, that calls ``backward`` by itself.

        Raises:
            RuntimeError: if the closure must be run as it is, `differentiates`.
        """
        context = self._context
        parameters = dict.fromkeys([*parameters_of(context.base), *context.model.parameters()])
        gradients = Gradients(parameters)
        others = [*(context.written or ()), *(parameters if weights else ())]
        guards: list[Any] = [
            Surroundings(context.model.modules(), others),
            gradients,
            RandomState.capture(),
        ]
        if context.wrappers.modules:
            guards.append(context.wrappers.present())
        try:
            self._begin(*guards)
            gradients.put_aside()
            start.put_back()
            mode: AbstractContextManager[Any] = contextlib.nullcontext()
            if closure and not self.differentiates:
                mode = self._skip = _WithoutBackward(gradients)
            with torch.set_grad_enabled(self.differentiates and not weights), mode:
                yield
        finally:
            self.end()

    def _begin(self, *guards: Any) -> None:
        """Note what is to be put back, then see the weights as they are now."""
        flags = Flags(self._context.model.modules())
        self._guards = (*guards, flags)
        if self.mode == "eval":
            flags.evaluate()
        # An autocast around the whole step would go on using its casts of the former weights.
        torch.clear_autocast_cache()

    def end(self) -> None:
        """Put everything back after an evaluation.

        Whoever makes a step calls it once more where that was cut off, for an interrupt can hit it.
        """
        if self._skip is not None and _get_current_function_mode() is self._skip:
            self._skip.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for guard in self._guards:
            guard.put_back()
        if self._guards:
            show_new_weights(self._context.model.modules())
        self._guards, self._skip = (), None


def _refuse_lightning(owner: str, closure: Callable[[], Any]) -> None:
    """Refuse Lightning's closure, which must not be run twice."""
    made_in = getattr(getattr(closure, "func", closure), "__module__", None) or ""
    if made_in.startswith(("lightning.", "pytorch_lightning.")):
        raise TypeError(
            f"{owner}.step: Lightning's closure runs the hooks and logs of a training step, and "
            "must not be run again for another arm or an accept test. Write "
            "Trainer(callbacks=[TunerCallback()]), from annealtune.integrations.lightning"
        )


def not_callable(owner: str, argument: str, value: Any) -> TypeError:
    """Describe an argument of ``step`` that should be a function."""
    return TypeError(f"{owner}.step({argument}=...) must be a function, got {value!r}")


def scalar(owner: str, argument: str, value: Any) -> float:
    """Return a loss, or what is compared instead, as a float.

    Raises:
        TypeError, ValueError: as `as_loss`.
    """
    return float(as_loss(owner, argument, value))


def as_loss(owner: str, argument: str, value: Any) -> Tensor:
    """Return the same as a tensor of one element, without waiting for its device.

    Raises:
        TypeError: if it is neither a number nor a tensor of real numbers.
        ValueError: if it is a tensor of more or less than one element.
    """
    what = "value" if argument in ("objective", "accept_on") else "loss"
    rule = f"{owner}.step({argument}): the {what} must be a scalar, got"
    is_number = isinstance(value, Real | Tensor) and not isinstance(value, bool)
    if not is_number or getattr(value, "dtype", None) in _NOT_REAL:
        raise TypeError(f"{rule} {value!r}")
    if not isinstance(value, Tensor):
        return torch.tensor(float(value), dtype=torch.float64)
    if value.numel() != 1:
        shape = tuple(value.shape)
        raise ValueError(f"{rule} a tensor of shape {shape}; reduce it, for example by .mean()")
    return value.detach()


def loss_in(result: Any) -> Any:
    """Return the loss in what a function returned: alone, first in a tuple, or by name."""
    if isinstance(result, Mapping):  # of transformers' models and Lightning's steps, for two
        return result.get("loss")
    return result[0] if isinstance(result, tuple) and result else result


def _recorded_loss(owner: str, result: Any) -> Tensor:
    """Return the loss in what a recorded function returned."""
    loss = loss_in(result)
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss
    shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
    raise TypeError(
        f"{owner}.record(fn): the function must return a scalar loss, a tuple that begins with "
        f"one, or a dict with one under 'loss', got {shown}"
    )
