"""Where torch's random number generators stand, and where they stood before a forward."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from annealtune.optim.evaluation import autocast
from annealtune.optim.evaluation.guards import Buffers
from annealtune.optim.evaluation.wrappers import Wrappers


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

    Args:
        wrappers: are told of the DDP that the forward runs in.
        buffers: whether to note the buffers of the model too.

    Attributes:
        expected: the autocast in which a function of the user's must evaluate the model again; None
            where it is entered for him, or not known.
    """

    def __init__(self, wrappers: Wrappers, *, buffers: bool = False) -> None:
        self._wrappers = wrappers
        self._notes_buffers = buffers
        self.state: RandomState | None = None
        self.buffers: Buffers | None = None
        self.paused = False  # whether nothing is noted at the moment
        self.expected: tuple[autocast.Autocast, ...] | None = None
        self._compares = False  # whether that function is running
        self._autocast: tuple[autocast.Autocast, ...] | None = None
        self._gradient: tuple[int, int] | None = None
        self._handle: RemovableHandle | None = None

    @torch.compiler.disable(  # type: ignore[untyped-decorator]
        reason="it notes the random state: give the tuner the compiled module instead of its inside"
    )
    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Note the state, unless this step has one or the forward takes no part in training."""
        if self.paused and self._compares and self.expected is not None:
            self._compare(self.expected)
        wanted = self.state is None and not self.paused
        wrapper = DistributedDataParallel._active_ddp_module
        if wrapper is not None:
            self._wrappers.notice(wrapper)
        if wanted and module.training and torch.is_grad_enabled():
            self.state = RandomState.capture()
            self._autocast = autocast.present()
            self._gradient = _mark_of_gradient(module)
            if self._notes_buffers:
                self.buffers = Buffers(list(module.modules()))

    def take(self) -> tuple[RandomState | None, Buffers | None]:
        """Return what was noted, and wait for the first forward of the next step."""
        noted = self.state, self.buffers
        self.state = self.buffers = None
        return noted

    def expect(self) -> None:
        """Have forwards that are made again compared with the one that was noted last."""
        self.expected, self._autocast = self._autocast, None

    @contextlib.contextmanager
    def comparing(self) -> Iterator[None]:
        """Compare forwards meanwhile; an objective may evaluate the model as it likes."""
        try:
            self._compares = True
            yield
        finally:
            self._compares = False

    def _compare(self, expected: tuple[autocast.Autocast, ...]) -> None:
        for one, now in zip(expected, autocast.present(), strict=False):
            if not one.agrees(now):
                raise ValueError(
                    "step(probe=...): the function must evaluate the model as the loss was "
                    f"computed, in {one}, got {now}: another precision is another loss. Put the "
                    "autocast into the function, or use compute_loss = opt.record(fn)"
                )

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
        self.take()

    def forget_abandoned(self, module: nn.Module) -> None:
        """Forget the noted forward if its gradients are about to be thrown away.

        So it is after a step that was skipped (by a GradScaler that met an overflow, by a loop
        that met a broken minibatch). Gradients that were there before the forward do not count:
        many loops reset them between forward and backward.
        """
        if self.paused or self.state is None:
            return
        if self._gradient != _mark_of_gradient(module):
            self.take()

    def __getstate__(self) -> dict[str, Any]:
        names = ("state", "buffers", "expected", "_autocast", "_gradient", "_handle")
        return {**self.__dict__, **dict.fromkeys(names), "paused": False, "_compares": False}


def _mark_of_gradient(module: nn.Module) -> tuple[int, int] | None:
    """Return what changes with every backward; one trained parameter tells for all."""
    trained = next((p for p in module.parameters() if p.requires_grad), None)
    gradient = None if trained is None else trained.grad
    return None if gradient is None else (id(gradient), gradient._version)
