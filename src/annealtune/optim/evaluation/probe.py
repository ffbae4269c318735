"""The second evaluation: same minibatch, same random numbers, nothing changed by it.

Whatever runs inside `Probe.replay` draws the random numbers that the first forward drew (dropout
repeats its mask), builds no graph, skips ``backward`` and leaves buffers, gradients, training
flags and random number generators as they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from annealtune.optim.evaluation import guards
from annealtune.optim.evaluation.random_state import ForwardRecorder, RandomState
from annealtune.optim.evaluation.wrappers import Wrappers
from annealtune.optim.parameters import (
    finite_marks,
    modules_of,
    parameters_of,
    trained_of,
    weights_are_finite,
)

ProbeMode = Literal["train", "eval"]
# Whether an evaluation builds a graph: never, if the evaluated function enables it, always, or
# always and backward too.
Graph = Literal["never", "if-enabled", "always", "and-backward"]

_BACKWARD = (torch.Tensor.backward, torch.autograd.backward)
_READ_GRADIENT = vars(torch._C.TensorBase)["grad"].__get__


class GradientWatch(TorchFunctionMode):
    """Find out what a closure does with gradients.

    Attributes:
        called_backward: whether it calls ``backward``.
        calls_grad: whether it differentiates by ``torch.autograd.grad``, as ``torch.func`` does.
        read: the tensors whose ``.grad`` it reads after ``backward``, by their identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.called_backward = False
        self.calls_grad = False
        self.read: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD:
            self.called_backward = True
        elif func is torch.autograd.grad:
            self.calls_grad = True
        elif self.called_backward and func == _READ_GRADIENT:
            self.read[id(args[0])] = args[0]
        return func(*args, **(kwargs or {}))


class _WithoutBackward(TorchFunctionMode):
    """Skip every ``backward`` and, where none must be built, every attempt to build a graph.

    A closure that clips or logs gradients after its ``backward`` finds zeros, made when it looks.
    """

    def __init__(self, graph: Graph, gradients: guards.Gradients) -> None:
        super().__init__()
        self._graph = graph
        self._gradients = gradients
        self._skipped = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD and self._graph != "and-backward":
            self._skipped = True
            return None
        if self._skipped and func == _READ_GRADIENT:
            (p, *_) = args
            if p.grad is None and self._gradients.has_one_of(p):
                p.grad = torch.zeros_like(p)
        # Some closures (Lightning's) are decorated with enable_grad: it would cost the memory of
        # a graph that nobody uses.
        if func is torch._C._set_grad_enabled and self._graph == "never":
            args = (False,)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def unchanged(weights: Iterable[Tensor], modules: list[nn.Module]) -> Iterator[None]:
    """Put weights, buffers, training flags and random numbers back after an evaluation."""
    start = RandomState.capture()
    with guards.kept(guards.Weights(weights), guards.Buffers(modules), guards.Flags(modules)):
        try:
            yield
        finally:
            start.restore()
            guards.show_new_weights(modules)


class Probe:
    """Evaluations that change nothing.

    Args:
        model: the module whose buffers and training flags are guarded, if known.
        buffers: further tensors to put back, for those who have no module to give.
        optimizer: its parameters' gradients are kept.
        mode: ``"train"`` evaluates the model as it is, ``"eval"`` in evaluation mode.
        forward: notes no forward meanwhile.
        wrappers: DDP and FSDP2 around the model.

    Raises:
        TypeError: if the buffers are no tensors.
        ValueError: if the mode is unknown, or there is no model to switch to evaluation.
    """

    def __init__(
        self,
        owner: str,
        model: nn.Module | None,
        buffers: Iterable[Tensor],
        optimizer: Optimizer,
        mode: ProbeMode,
        forward: ForwardRecorder,
        wrappers: Wrappers,
    ) -> None:
        if mode not in ("train", "eval"):
            raise ValueError(f"{owner}(probe_in=...) must be 'train' or 'eval', got {mode!r}")
        if mode == "eval" and model is None:
            raise ValueError(
                f"{owner}(probe_in='eval') must be given the module to switch to evaluation mode, "
                "got none"
            )
        self._model = model
        self._buffers = _tensors(f"{owner}(buffers=...)", buffers)
        self._kept = guards.Buffers(())  # their copies, allocated once
        self._optimizer = optimizer
        self.mode = mode
        self._forward = forward
        self._wrappers = wrappers
        # Of the evaluation under way: its modules, what puts everything back, what watches it.
        self._evaluated: list[nn.Module] | None = None
        self._put_back: tuple[Callable[[], None], ...] = ()
        self._watch: TorchFunctionMode | None = None

    @contextlib.contextmanager
    def first_forward(self) -> Iterator[GradientWatch]:
        """Run a closure that is to leave a gradient; its random state is known to the caller."""
        watch = GradientWatch()
        try:
            self._watch, self._forward.paused = watch, True
            with torch.enable_grad(), watch:
                yield watch
        finally:
            self.end()

    def inputs_among(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return those that are neither weights of the optimizer nor of the model."""
        own = set(map(id, self._parameters(modules_of(self._model))))
        return [t for t in tensors if id(t) not in own]

    @contextlib.contextmanager
    def plain_forward(self) -> Iterator[None]:
        """Run a closure without gradients, leaving what its forward leaves."""
        mode = _WithoutBackward("never", guards.Gradients(()))
        try:
            self._begin(modules_of(self._model), mode)
            with torch.no_grad(), mode:
                yield
        finally:
            self.end()

    @contextlib.contextmanager
    def replay(
        self,
        start: RandomState,
        *,
        graph: Graph = "if-enabled",
        weights: bool = False,
        inputs: Iterable[Tensor] = (),
    ) -> Iterator[None]:
        """Evaluate from the random state ``start``; afterwards everything is as before.

        Gradients are None inside, so that a closure's ``zero_grad`` cannot touch the real ones.

        Args:
            start: random state of the first forward.
            graph: whether one is built.
            weights: whether weights are put back too, at the price of a copy: a closure only reads
                them, a function that somebody wrote for the accept test may try others.
            inputs: tensors, no weights, whose gradients must not add up.
        """
        modules = modules_of(self._model)
        parameters = self._parameters(modules)
        gradients = guards.Gradients([*parameters, *inputs])
        mode = _WithoutBackward(graph, gradients)
        kept = [guards.Weights(parameters).put_back] if weights else []
        self._kept.take(modules, self._buffers)
        kept += [
            self._kept.put_back,
            gradients.put_back,
            RandomState.capture().restore,
        ]
        if self._wrappers.modules:
            kept.append(self._wrappers.present().put_back)
        try:
            try:
                self._begin(modules, mode, *kept)
                gradients.put_aside()
                start.restore()
                with torch.set_grad_enabled(graph in ("always", "and-backward")), mode:
                    yield
            finally:
                self.end()
        except BaseException:
            self.end()  # once more: an interrupt can hit the first attempt
            raise

    def _begin(
        self, modules: list[nn.Module], mode: TorchFunctionMode, *put_back: Callable[[], None]
    ) -> None:
        """Note what is to be put back, then see the weights as they are now."""
        flags = guards.Flags(modules)
        self._evaluated, self._put_back = modules, (*put_back, flags.put_back)
        self._watch, self._forward.paused = mode, True
        if self.mode == "eval":
            flags.evaluate()
        # An autocast around the whole step would go on using its casts of the former weights.
        torch.clear_autocast_cache()

    def end(self) -> None:
        """Put everything back after an evaluation, also after one that was cut off anywhere."""
        if self._watch is not None and _get_current_function_mode() is self._watch:
            self._watch.__exit__(None, None, None)
        for put_back in self._put_back:
            put_back()
        if self._evaluated is not None:
            guards.show_new_weights(self._evaluated)
        self._evaluated, self._put_back, self._watch = None, (), None
        self._forward.paused = False

    def weights_are_finite(self) -> bool:
        """Tell whether no weight that the optimizer moves is NaN or infinite."""
        return weights_are_finite(self._optimizer)

    def finite_marks(self) -> list[Tensor]:
        """Return numbers that are finite where the weights are, without waiting for a device."""
        return finite_marks(trained_of(self._optimizer))

    def _parameters(self, modules: list[nn.Module]) -> Iterable[Tensor]:
        """Return the optimizer's parameters and, for ``model.zero_grad()``, the modules'."""
        found: dict[Any, None] = dict.fromkeys(parameters_of(self._optimizer))
        for module in modules:
            found.update(dict.fromkeys(module._parameters.values()))
        found.pop(None, None)
        return found

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_evaluated": None, "_put_back": (), "_watch": None}
        return {**state, "_kept": guards.Buffers(())}


def _tensors(argument: str, values: Any) -> list[Tensor]:
    if isinstance(values, Tensor) or not isinstance(values, Iterable):
        raise TypeError(f"{argument} must be a collection of tensors, got {values!r}")
    tensors = list(values)
    for value in tensors:
        if not isinstance(value, Tensor):
            raise TypeError(f"{argument} must hold tensors, got {value!r}")
    return tensors
