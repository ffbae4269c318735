"""The setting of the next move, picked in its step or ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from annealtune.annealing import Neighborhood, Setting
from annealtune.annealing.neighborhood import restored
from annealtune.optim.annealing_state import AnnealingState
from annealtune.optim.options.controls import Controls
from annealtune.optim.part import Part, way_back_of


class Pick(Part):
    """Picks one setting for each move.

    A forward depends on the options of the loop that H sets. So they are written as soon as the
    setting is picked, and it is picked before the forward.

    Attributes:
        ahead: the setting that was picked and waits for its step.
    """

    def __init__(
        self, annealing: AnnealingState, controls: Controls, neighborhood: Neighborhood
    ) -> None:
        self._annealing = annealing
        self._controls = controls
        self._neighborhood = neighborhood
        self.ahead: Setting | None = None

    def make(self) -> Setting:
        """Pick the setting of the next move now, unless that is done; it waits for its step."""
        if self.ahead is None:
            setting = self._annealing.pick(self._neighborhood)
            self._controls.turn_loop(setting)
            self.ahead = setting
        return self.ahead

    def take(self) -> Setting:
        """Return the setting of the move that is made now.

        Raises:
            RuntimeError: if the forward has been made and depends on a setting that was not picked.
        """
        if self.ahead is not None:
            setting, self.ahead = self.ahead, None
            return setting
        if self._controls.loop_options:
            raise RuntimeError(
                f"{self._controls.owner}: the neighborhood sets "
                f"{', '.join(self._controls.loop_options)} of the training loop, which must be "
                "known before the forward: call prepare() first, or use step(closure)"
            )
        return self._annealing.pick(self._neighborhood)

    def recover(self) -> None:
        """Put back what the loop was given of a setting whose step was cut off."""
        if self.ahead is None:
            self._controls.put_back()

    def state_dict(self) -> dict[str, Any]:
        """Return the setting that waits for its step, and the loop's options without it."""
        picked = None if self.ahead is None else dict(self.ahead)
        return {"picked": picked, "loop": self._controls.resting()}

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse a setting of another H."""
        self._controls.check_resting(state.get("loop", {}))
        picked = state.get("picked")
        if picked is not None and restored(picked) not in self._neighborhood:
            raise self._annealing.no_setting(restored(picked))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._controls.rest(state.get("loop", {}))
        picked = state.get("picked")
        self.ahead = None if picked is None else restored(picked)
        if self.ahead is not None:
            self._controls.turn_loop(self.ahead)

    def way_back(self) -> Callable[[], None]:
        """Return a function that makes it what it is now, and the loop's options too."""
        go_back = way_back_of(self, self._controls)
        present = self._controls.present()

        def both() -> None:
            self._controls.rest(present)
            go_back()

        return both
