"""The second evaluation: same minibatch, same random numbers, nothing changed by it.

Whatever runs inside `Probe.replay` draws the random numbers that the first forward drew (dropout
repeats its mask), builds no graph, skips ``backward`` and leaves buffers, gradients, training
flags and random number generators as they were.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

ProbeMode = Literal["train", "eval"]
# Whether an evaluation builds a graph: never, if the evaluated function enables it, or always.
Graph = Literal["never", "if-enabled", "always"]

_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)


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


class ForwardRecorder:
    """A forward pre-hook that notes the random state at the first training forward of a step.

    It holds no reference to the optimizer, so a copied or saved model does not drag one along.
    """

    def __init__(self) -> None:
        self.state: RandomState | None = None
        self.paused = False

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Note the state, unless this step has one or the forward takes no part in training."""
        wanted = self.state is None and not self.paused
        if wanted and module.training and torch.is_grad_enabled():
            self.state = RandomState.capture()

    def __getstate__(self) -> dict[str, Any]:
        return {"state": None, "paused": False}


class GradientWatch(TorchFunctionMode):
    """Find out what a closure does: whether it calls ``backward``, whether it needs a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.called_backward = False
        self.needs_graph = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD:
            self.called_backward = True
        elif func is torch.autograd.grad:
            self.needs_graph = True
        return func(*args, **(kwargs or {}))


class _WithoutBackward(TorchFunctionMode):
    """Skip every ``backward`` and, where none must be built, every attempt to build a graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD:
            return None
        # Some closures (Lightning's) are decorated with enable_grad: it would cost the memory of
        # a graph that nobody uses.
        if func is torch._C._set_grad_enabled and self._graph == "never":
            args = (False,)
        return func(*args, **(kwargs or {}))


class Probe:
    """Evaluations that change nothing.

    Args:
        owner: name of the optimizer's class, for messages.
        model: the module whose buffers and training flags are guarded, if known.
        buffers: further tensors to put back, for those who have no module to give.
        parameters: returns the parameters whose gradients are kept.
        mode: ``"train"`` evaluates the model as it is, ``"eval"`` in evaluation mode.

    Raises:
        TypeError: if the model is none.
        ValueError: if the mode is unknown, or there is no model to switch to evaluation.
    """

    def __init__(
        self,
        owner: str,
        model: nn.Module | None,
        buffers: Iterable[Tensor],
        parameters: Callable[[], Iterable[Tensor]],
        mode: ProbeMode,
    ) -> None:
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(f"{owner}(model=...) must be a torch.nn.Module, got {model!r}")
        if mode not in ("train", "eval"):
            raise ValueError(f"{owner}(probe_in=...) must be 'train' or 'eval', got {mode!r}")
        if mode == "eval" and model is None:
            raise ValueError(
                f"{owner}(probe_in='eval') must be given the module to switch to evaluation mode, "
                "got none"
            )
        self._model = model
        self._buffers = list(buffers)
        self._parameters = parameters
        self.mode = mode
        self._recorder = ForwardRecorder()
        if model is not None:
            weakref.finalize(self, model.register_forward_pre_hook(self._recorder).remove)

    def take_start(self, rng_state: Tensor | RandomState | None = None) -> RandomState:
        """Return the random state before this step's forward, and forget it.

        Args:
            rng_state: the state itself, or that of the CPU generator, where the caller knows it;
                otherwise it is what the model's forward noted, or else the present state.
        """
        noted, self._recorder.state = self._recorder.state, None
        if isinstance(rng_state, RandomState):
            return rng_state
        start = noted or RandomState.capture()
        return start if rng_state is None else start._replace(cpu=rng_state)

    @contextlib.contextmanager
    def first_forward(self) -> Iterator[GradientWatch]:
        """Run a closure that is to leave a gradient; its random state is known to the caller."""
        self._recorder.paused = True
        try:
            with torch.enable_grad(), GradientWatch() as watch:
                yield watch
        finally:
            self._recorder.paused = False

    @contextlib.contextmanager
    def plain_forward(self) -> Iterator[None]:
        """Run a closure without gradients, leaving what its forward leaves."""
        with contextlib.ExitStack() as stack:
            if self.mode == "eval":
                stack.enter_context(_evaluation_mode(self._model))
            stack.enter_context(torch.no_grad())
            stack.enter_context(_WithoutBackward("never"))
            yield

    @contextlib.contextmanager
    def replay(self, start: RandomState, *, graph: Graph = "if-enabled") -> Iterator[None]:
        """Evaluate from the random state ``start``; afterwards everything is as before.

        Gradients are None inside, so that a closure's ``zero_grad`` cannot touch the real ones.
        """
        now = RandomState.capture()
        gradients = [(p, p.grad) for p in self._all_parameters()]
        with contextlib.ExitStack() as stack:
            stack.enter_context(_buffers_kept(self._model, self._buffers))
            if self.mode == "eval":
                stack.enter_context(_evaluation_mode(self._model))
            for p, _ in gradients:
                p.grad = None
            start.restore()
            try:
                with torch.set_grad_enabled(graph == "always"), _WithoutBackward(graph):
                    yield
            finally:
                now.restore()
                for p, gradient in gradients:
                    p.grad = gradient

    def _all_parameters(self) -> Iterable[Tensor]:
        if self._model is None:
            return self._parameters()
        # A closure may well call model.zero_grad(), which reaches beyond the optimizer's own.
        return dict.fromkeys([*self._parameters(), *self._model.parameters()])


@contextlib.contextmanager
def _evaluation_mode(model: nn.Module | None) -> Iterator[None]:
    """Switch every submodule to evaluation and each back to what it was.

    The flags are set directly: ``Module.train`` may have side effects in subclasses.
    """
    flags = [] if model is None else [(module, module.training) for module in model.modules()]
    for module, _ in flags:
        module.training = False
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


@contextlib.contextmanager
def _buffers_kept(model: nn.Module | None, extra: list[Tensor]) -> Iterator[None]:
    """Put every buffer back, also one that the forward replaced by a new tensor."""
    modules = [] if model is None else [m for m in model.modules() if m._buffers]
    entries = [(module, dict(module._buffers)) for module in modules]
    tensors = [b for _, named in entries for b in named.values() if b is not None] + extra
    with torch.no_grad():
        copies = [b.clone() for b in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, kept in zip(tensors, copies, strict=True):
                buffer.copy_(kept)
        for module, named in entries:
            module._buffers.clear()
            module._buffers.update(named)
