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
import numbers
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils.hooks import RemovableHandle

from annealtune.optim.context import Context
from annealtune.optim.parameters import parameters_of
from annealtune.optim.ranks import Exchanges, Wrappers, through
from annealtune.optim.run_state import (
    Buffers,
    Copies,
    Flags,
    Gradients,
    RandomState,
    show_new_weights,
)

Function = TypeVar("Function", bound=Callable[..., Any])
Objective = Callable[[], Any]
ProbeMode = Literal["train", "eval"]

_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)
_READ_GRADIENT = vars(torch._C.TensorBase)["grad"].__get__


class Call:
    """One recorded computation of a loss.

    Args:
        context: the run.
        compute: makes the call once more.
        scaler: the GradScaler that scales the loss, if any.
        differentiated: whether it leads to a backward.
    """

    def __init__(
        self,
        context: Context,
        compute: Callable[[], Any],
        scaler: Any = None,
        *,
        differentiated: bool = True,
    ) -> None:
        self._owner = context.owner
        self._compute = compute
        self.scaler = scaler
        self._wrapper = DistributedDataParallel._active_ddp_module  # whose forward this is part of
        self.exchanges: Exchanges | None = None  # whether its gradient was to be exchanged
        self.start = RandomState.capture()
        self._autocast = _autocast()
        self.factor: Tensor | None = None  # None until its backward
        self.result = compute()
        if context.wrappers.modules:  # the forward may have been the first to show one
            self.exchanges = context.wrappers.present()
        loss = _loss_of(self._owner, self.result)
        self.loss = loss.detach()  # lets go of the graph when the caller does
        if not differentiated:
            self.factor = torch.ones_like(self.loss)
        elif loss.requires_grad:
            loss.register_hook(self._note_factor)
        else:
            raise ValueError(
                f"{self._owner}.record(fn): the loss must depend on parameters that require a "
                f"gradient, got {loss!r}"
            )

    def _note_factor(self, gradient: Tensor) -> None:
        before = self.factor  # of another backward of the same loss: gradients add up
        self.factor = gradient.detach().clone() if before is None else before + gradient.detach()

    @property
    def is_withheld(self) -> bool:
        """Whether FSDP2 keeps its gradient to itself until a later one is exchanged."""
        return self.exchanges is not None and self.exchanges.withhold

    def again(self) -> Tensor:
        """Compute the loss at the weights as they are now, with the same random numbers."""
        with contextlib.ExitStack() as stack:
            for device, enabled, dtype in self._autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            self.start.restore()
            if self._wrapper is not None:
                return _loss_of(self._owner, through(self._wrapper, self._compute))
            return _loss_of(self._owner, self._compute())


class Minibatch:
    """What can be computed of a minibatch; this one is a gradient of which nothing else is known.

    That is enough for a plain step.

    Attributes:
        returned: what the step returns: the loss as the caller knows it.
        start: the random state before its first forward.
        scale: what the GradScaler, if any, multiplies its loss by; None without one.
        result: what the closure, if there is one, returned.
    """

    result: Any = None
    scale: float | None = None
    start = RandomState(torch.empty(0))

    def __init__(self, losses: list[Tensor]) -> None:
        self._losses = losses
        self.returned: Any = losses[0] if len(losses) == 1 else None

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
        told: is called when the closure has left ``backward`` to us.
    """

    def __init__(
        self,
        context: Context,
        closure: Callable[[], Any],
        told: Callable[[], None] = lambda: None,
    ) -> None:
        if not callable(closure):
            raise not_callable(context.owner, "closure", closure)
        super().__init__([])
        self._context = context
        self._closure = closure
        self._told = told
        self.start = RandomState.capture()

    def first(self) -> list[Tensor]:
        """Run the closure and make the gradient if it did not."""
        self.returned = self._run()
        return [self.returned]

    def compared(self) -> Tensor:
        """Return the loss."""
        loss: Tensor = self.returned
        return loss

    def again(self) -> Tensor:
        """Run it again, from the same random numbers."""
        self._context.base.zero_grad()
        self.start.restore()
        return self._run()

    def evaluate(self) -> Any:
        """Run it again."""
        return self._closure()

    def _run(self) -> Tensor:
        # The tensors themselves are held: the address of one that is gone may be used again.
        before = []
        for p in parameters_of(self._context.base):
            gradient = p.grad
            before.append((p, gradient, None if gradient is None else gradient._version))
        with torch.enable_grad():
            result = self._closure()
        self.result = result
        loss = result[0] if isinstance(result, tuple) and result else result
        detached = as_loss(self._context.owner, "closure", loss)
        made = False
        for p, gradient, version in before:
            if p.grad is not None and (p.grad is not gradient or p.grad._version != version):
                made = True
        del before, gradient
        if not made:
            self._differentiate(loss)
        return detached

    def _differentiate(self, loss: Any) -> None:
        """Make the gradient of a loss whose closure did not."""
        if not (isinstance(loss, Tensor) and loss.requires_grad):
            raise ValueError(
                f"{self._context.owner}.step(closure): the closure must return a loss that depends "
                "on parameters which require a gradient, or call backward itself, got "
                f"{loss!r}"
            )
        self._context.base.zero_grad()
        with torch.enable_grad():
            loss.backward()
        self._told()


class RecordedMinibatch(Minibatch):
    """The recorded calls whose gradients are in place.

    Args:
        context: the run.
        calls: since the last step.
        after: functions to call when a gradient was made here.
    """

    def __init__(
        self, context: Context, calls: list[Call], after: Iterable[Callable[[], Any]] = ()
    ) -> None:
        super().__init__([call.loss for call in calls])
        self._context = context
        self._calls = calls
        self._after = after
        self.start = calls[0].start
        scaler = calls[0].scaler
        self.scale = scaler.get_scale() if scaler is not None and scaler.is_enabled() else None

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
        if self.scale is not None and (gradients := self._context.gradients):
            torch._foreach_mul_(gradients, 1.0 / self.scale)
        for function in self._after:
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
        notes_buffers: whether to note the buffers of the model before the forward.
        differentiates: whether only recorded calls count that lead to a backward.

    Attributes:
        records: whether a function was ever recorded.
        replays: whether losses are computed again: recorded calls keep a minibatch alive.
        buffers: those of the model before the forward of this minibatch, if they are noted.
    """

    def __init__(
        self, context: Context, *, notes_buffers: bool = False, differentiates: bool = True
    ) -> None:
        self._context = context
        self._notes_buffers = notes_buffers
        self._differentiates = differentiates
        self._calls: list[Call] = []
        self._losses: list[Tensor] = []  # of calls that need not be repeated
        self.paused = False  # whether nothing is remembered at the moment
        self.records = False
        self.replays = True
        self.buffers: Buffers | None = None
        self._after_replay: OrderedDict[int, Callable[[], Any]] = OrderedDict()
        self._knows_closures = False  # whether one was looked at: the others are like it
        self._own_gradients: list[tuple[Tensor, int, int]] = []  # made by us for a closure
        self._notice = _NoticeDDP(context.wrappers)
        self._notice.attach(context.model, self)

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
        self.records = True

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self.paused or not torch.is_grad_enabled():
                return function(*args, **kwargs)
            if not self.replays:
                result = function(*args, **kwargs)
                loss = _loss_of(owner, result)
                if loss.requires_grad:  # one of a validation says nothing of the run
                    value = loss.detach()
                    loss.register_hook(lambda _: self._losses.append(value))
                return result
            return self._remembered(functools.partial(function, *args, **kwargs), scaler)

        return recorded  # type: ignore[return-value]

    def _remembered(self, compute: Callable[[], Any], scaler: Any) -> Any:
        is_done = self._differentiates and any(call.factor is not None for call in self._calls)
        if is_done and not self._context.gradients and not self._calls[-1].is_withheld:
            self.forget_done()  # model.zero_grad() tells nobody
        if not self._calls and self._notes_buffers:
            self.buffers = Buffers(self._context.modules)
        try:
            self.paused = True  # a recorded function that it calls is a part of it
            call = Call(self._context, compute, scaler, differentiated=self._differentiates)
        finally:
            self.paused = False
        self._calls.append(call)
        result, call.result = call.result, None
        return result

    def take(self, closure: Callable[[], Any] | None, *, again: bool = True) -> Minibatch:
        """Return the minibatch of this step.

        Args:
            closure: as in ``step``.
            again: whether its loss will be computed again.

        Raises:
            TypeError: if it cannot be and must.
        """
        if distributed.is_available() and distributed.is_initialized():
            self._context.ranks.begin()
        calls, losses = self._calls, self._losses
        self._calls, self._losses = [], []
        if closure is not None:
            if not self._knows_closures:
                _refuse_lightning(self._context.owner, closure)
                self._knows_closures = True
            if again and self._notes_buffers:
                self.buffers = Buffers(self._context.modules)
            self._drop_own_gradients()
            return ClosureMinibatch(self._context, closure, self._note_own_gradients)
        if not again:
            return Minibatch(losses)
        calls = [call for call in calls if call.factor is not None]
        if not calls:
            raise self._no_minibatch()
        return RecordedMinibatch(self._context, calls, tuple(self._after_replay.values()))

    def take_calls(self) -> list[Call]:
        """Return the calls since the last step, and forget them."""
        calls, self._calls = self._calls, []
        return [call for call in calls if call.factor is not None]

    def register_after_replay(self, function: Callable[[], Any]) -> RemovableHandle:
        """Have a function called after each gradient that is made here."""
        handle = RemovableHandle(self._after_replay)
        self._after_replay[handle.id] = function
        return handle

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        """Remember nothing meanwhile: the step itself runs the caller's functions."""
        before = self.paused
        try:
            self.paused = True
            yield
        finally:
            self.paused = before

    def begin_replays(self) -> None:
        """From here on losses are computed again."""
        self.replays = True
        self._notice.attach(self._context.model, self)

    def end_replays(self) -> None:
        """From here on no loss is computed again: keep no minibatch alive, watch no forward."""
        self.replays = False
        self._notice.detach()
        self.buffers = None

    def forget_done(self) -> None:
        """Drop calls whose gradients will be zeroed: they belong to a step that was skipped.

        Calls without a backward stay: many loops reset gradients between forward and backward.
        """
        if not self.paused and (self._calls or self._losses):
            self._calls = [call for call in self._calls if call.factor is None]
            self._losses = []

    def _note_own_gradients(self) -> None:
        """Hear that the gradients were made by us, for a closure that did not."""
        for p in parameters_of(self._context.base):
            if p.grad is not None:
                self._own_gradients.append((p, id(p.grad), p.grad._version))

    def _drop_own_gradients(self) -> None:
        """Free them before the next forward, unless somebody has touched them since."""
        for p, identity, version in self._own_gradients:
            if p.grad is not None and (id(p.grad), p.grad._version) == (identity, version):
                p.grad = None
        self._own_gradients = []

    def _no_minibatch(self) -> TypeError:
        missing = "no closure, and no function was recorded"
        if self.records:
            missing = (
                "neither, no call of a recorded function that led to a backward since the last "
                "step (calls under torch.no_grad() do not count)"
            )
        return TypeError(
            f"{self._context.owner}.step() must be given a closure, or follow the backward of a "
            f"recorded function, got {missing}; wrap the function by compute_loss = opt.record(fn) "
            "and call compute_loss(...).backward() before step(), or call step(closure)"
        )

    def __getstate__(self) -> dict[str, Any]:
        # Functions of the loop stay with the original, as hooks do.
        own = {"_calls": [], "_losses": [], "paused": False, "_after_replay": OrderedDict()}
        return {**self.__dict__, **own, "buffers": None, "_own_gradients": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.replays:
            self.begin_replays()


class _NoticeDDP:
    """A forward pre-hook that notices the DDP which was put around the model after the tuner.

    It holds no reference to the optimizer, so a copied or saved model does not drag one along.
    """

    def __init__(self, wrappers: Wrappers) -> None:
        self._wrappers = wrappers
        self._handle: RemovableHandle | None = None

    @torch.compiler.disable(  # type: ignore[untyped-decorator]
        reason="it looks for DDP: give the tuner the compiled module instead of its inside"
    )
    def __call__(self, module: nn.Module, inputs: Any) -> None:
        wrapper = DistributedDataParallel._active_ddp_module
        if wrapper is not None:
            self._wrappers.notice(wrapper)

    def attach(self, module: nn.Module, holder: object) -> None:
        """Hook on to a module until `detach` is called or ``holder`` is gone."""
        self.detach()
        present = module._forward_pre_hooks  # a copied module has brought the hook along
        for key in [key for key, hook in present.items() if hook is self]:
            del present[key]
        self._handle = module.register_forward_pre_hook(self)
        weakref.finalize(holder, self._handle.remove)

    def detach(self) -> None:
        """Take the hook away."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None}


class DifferentiatesError(RuntimeError):
    """A closure needs gradients to compute its loss, so that it must be run as it is."""


class _WithoutBackward(TorchFunctionMode):
    """Skip ``backward``, which a closure may call itself: the gradient that counts is made.

    A closure that clips or logs gradients after its ``backward`` finds zeros, made when it looks.

    Raises:
        DifferentiatesError: if it differentiates for the sake of its loss, as a gradient penalty or
            adversarial training does.
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
            raise DifferentiatesError("the closure differentiates to compute its loss")
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
        differentiates: whether closures need gradients to compute their loss.

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
        self._kept = Buffers(())  # their copies, allocated once
        # Of the evaluation under way: its modules, what puts everything back, what skips backward.
        self._evaluated: list[nn.Module] | None = None
        self._put_back: tuple[Callable[[], None], ...] = ()
        self._skip: _WithoutBackward | None = None

    @contextlib.contextmanager
    def plain_forward(self) -> Iterator[None]:
        """Run a closure without gradients, leaving what its forward leaves."""
        try:
            modules = self._context.modules
            self._begin(modules)
            skip = self._skip = _WithoutBackward(Gradients(self._parameters(modules)))
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
            DifferentiatesError: if the closure must be run as it is, `differentiates`.
        """
        modules = list(self._context.model.modules())
        parameters = self._parameters(modules)
        gradients = Gradients(parameters)
        kept = [Copies(parameters).put_back] if weights else []
        self._kept.take(modules)
        kept += [self._kept.put_back, gradients.put_back, RandomState.capture().restore]
        if self._context.wrappers.modules:
            kept.append(self._context.wrappers.present().put_back)
        try:
            try:
                self._begin(modules, *kept)
                gradients.put_aside()
                start.restore()
                mode: AbstractContextManager[Any] = contextlib.nullcontext()
                if closure and not self.differentiates:
                    mode = self._skip = _WithoutBackward(gradients)
                with torch.set_grad_enabled(closure and self.differentiates), mode:
                    yield
            finally:
                self.end()
        except BaseException:
            self.end()  # once more: an interrupt can hit the first attempt
            raise

    def _begin(self, modules: list[nn.Module], *put_back: Callable[[], None]) -> None:
        """Note what is to be put back, then see the weights as they are now."""
        flags = Flags(modules)
        self._evaluated, self._put_back = modules, (*put_back, flags.put_back)
        if self.mode == "eval":
            flags.evaluate()
        # An autocast around the whole step would go on using its casts of the former weights.
        torch.clear_autocast_cache()

    def end(self) -> None:
        """Put everything back after an evaluation, also after one that was cut off anywhere."""
        if self._skip is not None and _get_current_function_mode() is self._skip:
            self._skip.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for put_back in self._put_back:
            put_back()
        if self._evaluated is not None:
            show_new_weights(self._evaluated)
        self._evaluated, self._put_back, self._skip = None, (), None

    def _parameters(self, modules: list[nn.Module]) -> list[Tensor]:
        """Return the optimizer's parameters and, for ``model.zero_grad()``, the modules'."""
        found: dict[Any, None] = dict.fromkeys(parameters_of(self._context.base))
        for module in modules:
            found.update(dict.fromkeys(module._parameters.values()))
        found.pop(None, None)
        return list(found)

    def __getstate__(self) -> dict[str, Any]:
        own = {"_evaluated": None, "_put_back": (), "_skip": None, "_kept": Buffers(())}
        return {**self.__dict__, **own}


def _autocast() -> list[tuple[str, bool, torch.dtype]]:
    """Return the precision that is on now, on the CPU and on CUDA where it is used."""
    devices = ["cpu", "cuda"] if torch.cuda.is_initialized() else ["cpu"]
    return [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]


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
        TypeError: if it is neither a number nor a tensor of real numbers.
        ValueError: if it is a tensor of more or less than one element.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise _no_scalar(owner, argument, value)
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{owner}.step({argument}): {_what(argument)} a scalar, got {value!r}")
    return float(value)


def unread(owner: str, argument: str, value: Any) -> Tensor | float:
    """Return the same without waiting for the device of a tensor; its number is read later.

    Raises:
        TypeError, ValueError: as `scalar`.
    """
    if type(value) is Tensor and value.is_floating_point() and value.numel() == 1:
        return value.detach()
    return scalar(owner, argument, value)


def as_loss(owner: str, argument: str, value: Any) -> Tensor:
    """Return a loss as a tensor of one element, without waiting for its device.

    Raises:
        TypeError: if it is neither a number nor a tensor.
        ValueError: if it is a tensor of more or less than one element.
    """
    if not isinstance(value, Tensor):
        return torch.tensor(scalar(owner, argument, value), dtype=torch.float64)
    if value.numel() != 1:
        raise _no_scalar(owner, argument, value)
    if value.is_complex() or value.dtype is torch.bool:
        raise TypeError(f"{owner}.step({argument}): the loss must be a scalar, got {value!r}")
    return value.detach()


def _no_scalar(owner: str, argument: str, value: Tensor) -> ValueError:
    return ValueError(
        f"{owner}.step({argument}): {_what(argument)} a scalar, got a tensor of shape "
        f"{tuple(value.shape)}; reduce it, for example by .mean()"
    )


def _what(argument: str) -> str:
    return f"the {'value' if argument in ('objective', 'accept_on') else 'loss'} must be"


def _loss_of(owner: str, result: Any) -> Tensor:
    """Return the loss that a recorded function computed, alone, first in a tuple, or by name."""
    loss = result[0] if isinstance(result, tuple) and result else result
    if isinstance(result, Mapping):  # of transformers' models, for one
        loss = result.get("loss")
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise TypeError(
            f"{owner}.record(fn): the function must return a scalar loss, a tuple that begins with "
            f"one, or a dict with one under 'loss', got {shown}"
        )
    return loss
