"""The second evaluation: same minibatch, same random numbers, nothing changed by it.

Whatever runs inside `Probe.replay` draws the random numbers that the first forward drew (dropout
repeats its mask), builds no graph, skips ``backward`` and leaves buffers, gradients, training
flags and random number generators as they were.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from annealtune.optim import guards
from annealtune.optim.random_state import ForwardRecorder, RandomState, checked_state

ProbeMode = Literal["train", "eval"]
# Whether an evaluation builds a graph: never, if the evaluated function enables it, or always.
Graph = Literal["never", "if-enabled", "always"]

# So many times a closure is watched.
_PLAIN_RUNS = 3
_UNWATCHED = contextlib.nullcontext()
_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)
_READ_GRADIENT = vars(torch._C.TensorBase)["grad"].__get__


class GradientWatch(TorchFunctionMode):
    """Find out what a closure does: whether it calls ``backward``, whether it needs a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.called_backward = False
        self.needs_graph = False
        self.is_watching = True

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD:
            self.called_backward = True
        elif func is torch.autograd.grad:
            self.needs_graph = True
        return func(*args, **(kwargs or {}))


class _WithoutBackward(TorchFunctionMode):
    """Skip every ``backward`` and, where none must be built, every attempt to build a graph.

    A closure that clips or logs gradients after its ``backward`` finds zeros, made when it looks.
    """

    def __init__(self, graph: Graph, differentiated: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self._graph = graph
        self._differentiated = {id(p) for p in differentiated}
        self._skipped = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD:
            self._skipped = True
            return None
        if self._skipped and func == _READ_GRADIENT:
            (p, *_) = args
            if p.grad is None and id(p) in self._differentiated:
                p.grad = torch.zeros_like(p)
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
        optimizer: its parameters' gradients are kept.
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
        optimizer: Optimizer,
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
        self._buffers = _tensors(f"{owner}(buffers=...)", buffers)
        self._owner = owner
        self._optimizer = optimizer
        self.mode = mode
        self._recorder = ForwardRecorder()
        self._own_gradients: list[tuple[Tensor, int, int]] = []
        # How often closures were seen that only return a loss, by their code.
        self._plain_runs: dict[Any, int] = {}
        self._evaluated: list[nn.Module] | None = None  # modules, at the last evaluation
        if model is not None:
            model.register_forward_pre_hook(self._recorder)
            self._unhook_when_deleted(model)

    def take_start(self, rng_state: Tensor | RandomState | None = None) -> RandomState:
        """Return the random state before this step's forward, and forget it.

        Args:
            rng_state: the state itself, or that of the CPU generator, where the caller knows it;
                otherwise it is what the model's forward noted, or else the present state.
        """
        start = self.start(rng_state)
        self._recorder.state = None
        return start

    def start(self, rng_state: Tensor | RandomState | None = None) -> RandomState:
        """Return what `take_start` would, and go on remembering it."""
        if isinstance(rng_state, RandomState):
            return rng_state
        start = self._recorder.state or RandomState.capture()
        if rng_state is None:
            return start
        return start._replace(cpu=checked_state(self._owner, rng_state, start.cpu))

    def forget_abandoned(self) -> None:
        """Hear that gradients are about to be reset: a forward that led to them is no start."""
        if self._model is not None:
            self._recorder.forget_abandoned(self._model)

    @contextlib.contextmanager
    def first_forward(self, closure: Callable[[], Any]) -> Iterator[GradientWatch]:
        """Run a closure that is to leave a gradient; its random state is known to the caller.

        To watch costs a few percent of a small net. A closure whose code only returned a loss
        several times is not watched any more, until gradients appear that it must have made. Where
        something is compiled the watch goes on, for a compiled net belongs to the mode it was
        compiled in.
        """
        self._drop_own_gradients()
        watch = GradientWatch()
        code = getattr(closure, "__code__", None)
        watched = watch.is_watching = self._plain_runs.get(code, 0) < _PLAIN_RUNS
        without = [] if watched else [p for p in self._parameters([]) if p.grad is None]
        with self._recorder.pause(), torch.enable_grad(), watch if watched else _UNWATCHED:
            yield watch
        if any(p.grad is not None for p in without):
            watch.called_backward = True
            self.watch_again(closure)
        plain = code is not None and not (watch.called_backward or watch.needs_graph)
        if watched and not plain:
            self.watch_again(closure)
        elif watched and not _has_compiled():
            self._plain_runs[code] = self._plain_runs.get(code, 0) + 1

    def watch_again(self, closure: Any) -> None:
        """Watch a closure for ever: it does more than return a loss."""
        self._plain_runs[getattr(closure, "__code__", None)] = -sys.maxsize

    def note_own_gradients(self) -> None:
        """Remember the gradients as made by the optimizer itself, for a closure that did not."""
        self._own_gradients = [
            (p, id(p.grad), p.grad._version) for p in self._parameters([]) if p.grad is not None
        ]

    def _drop_own_gradients(self) -> None:
        """Free them before the next forward, unless somebody has touched them since."""
        for p, identity, version in self._own_gradients:
            if p.grad is not None and (id(p.grad), p.grad._version) == (identity, version):
                p.grad = None
        self._own_gradients = []

    @contextlib.contextmanager
    def plain_forward(self) -> Iterator[None]:
        """Run a closure without gradients, leaving what its forward leaves."""
        with self._evaluating(self._modules()), torch.no_grad(), _WithoutBackward("never"):
            yield

    @contextlib.contextmanager
    def replay(
        self, start: RandomState, *, graph: Graph = "if-enabled", weights: bool = False
    ) -> Iterator[None]:
        """Evaluate from the random state ``start``; afterwards everything is as before.

        Gradients are None inside, so that a closure's ``zero_grad`` cannot touch the real ones.

        Args:
            start: random state of the first forward.
            graph: whether one is built.
            weights: whether weights are put back too, at the price of a copy: a closure only reads
                them, a function that somebody wrote for the accept test may try others.
        """
        now = RandomState.capture()
        modules = self._evaluated = self._modules()
        parameters = self._parameters(modules)
        gradients = [(p, p.grad) for p in parameters]
        differentiated = [p for p, gradient in gradients if gradient is not None]
        with (
            guards.weights_kept(parameters if weights else ()),
            guards.buffers_kept(modules, self._buffers),
            self._evaluating(modules),
        ):
            try:
                for p in differentiated:
                    p.grad = None
                start.restore()
                builds_graph = torch.set_grad_enabled(graph == "always")
                with builds_graph, _WithoutBackward(graph, differentiated):
                    yield
            finally:
                now.restore()
                for p, gradient in gradients:
                    p.grad = gradient

    def buffers(self) -> guards.Buffers:
        """Copy the buffers, for a forward that may have to be taken back."""
        # Those of the last evaluation: to look for modules takes longer than to copy buffers.
        modules = self._modules() if self._evaluated is None else self._evaluated
        return guards.Buffers(modules, self._buffers)

    def weights_are_finite(self) -> bool:
        """Tell whether no weight that the optimizer moves is NaN or infinite."""
        moved = [p for p in self._parameters([]) if p.grad is not None]
        return all(bool(p.isfinite().all()) for p in moved)

    @contextlib.contextmanager
    def _evaluating(self, modules: list[nn.Module]) -> Iterator[None]:
        """See the weights as they are now, in the mode of the accept test; keep training flags."""
        # An autocast around the whole step would go on using its casts of the former weights.
        torch.clear_autocast_cache()
        with self._recorder.pause(), guards.flags_kept(modules, evaluate=self.mode == "eval"):
            try:
                yield
            finally:
                guards.show_new_weights(modules)

    def _modules(self) -> list[nn.Module]:
        return [] if self._model is None else list(self._model.modules())

    def _parameters(self, modules: list[nn.Module]) -> Iterable[Tensor]:
        """Return the optimizer's parameters and, for ``model.zero_grad()``, the modules'."""
        own = [p for group in self._optimizer.param_groups for p in group["params"]]
        others = [p for m in modules for p in m._parameters.values() if p is not None]
        return dict.fromkeys([*own, *others])

    def _unhook_when_deleted(self, model: nn.Module) -> None:
        weakref.finalize(self, _unhook, weakref.ref(model._forward_pre_hooks), self._recorder)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plain_runs": {}, "_evaluated": None}  # code cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._model is not None:
            self._unhook_when_deleted(self._model)


def _has_compiled() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def _unhook(hooks: Callable[[], dict[int, Any] | None], recorder: ForwardRecorder) -> None:
    present = hooks()
    if present is not None:
        for key in [key for key, hook in present.items() if hook is recorder]:
            del present[key]


def _tensors(argument: str, values: Any) -> list[Tensor]:
    if isinstance(values, Tensor) or not isinstance(values, Iterable):
        raise TypeError(f"{argument} must be a collection of tensors, got {values!r}")
    tensors = list(values)
    for value in tensors:
        if not isinstance(value, Tensor):
            raise TypeError(f"{argument} must hold tensors, got {value!r}")
    return tensors
