"""The joint model of several layers as a case for the tests of `gdd_book.checks.calibration`."""

from typing import NamedTuple

import numpy as np

from gdd.model.joint import draw_joint_data, draw_joint_state
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointState, LayerData
from gdd.reference.joint_conditionals import layer_state
from gdd.reference.joint_sweep import CORRECT, Pieces, draw_joint_shared, plain_local_pass
from gdd.reference.random import Key
from gdd.sampler.joint_sweep import joint_sweep, local_pass
from gdd_book.checks.calibration import Step, blocks_alike, layer_statistics


class JointCase(NamedTuple):
    """A small joint model under proper priors, and how many images it explains."""

    model: ModelSpec
    refinement: RefinementSpec
    images: int
    hidden: float = 0.0  # share of pixels that a mask hides at random

    @property
    def spec(self) -> tuple[ModelSpec, RefinementSpec]:
        """What a record keeps of it."""
        return self.model, self.refinement

    @property
    def size(self) -> tuple[int, ...]:
        """Axes of the data, (image, plane, row, col)."""
        return (self.images, self.model.planes, *self.model.image_size)

    def draw_state(self, generator: np.random.Generator) -> JointState:
        """All unknowns from their prior."""
        return draw_joint_state(self.images, self.model, self.refinement, generator)

    def draw_data(self, state: JointState, generator: np.random.Generator, mask: np.ndarray | None = None) -> LayerData:
        """Draw the data given all unknowns."""
        return draw_joint_data(state, self.model, generator, mask)

    def statistics(self, state: JointState, data: LayerData) -> dict[str, float]:
        """Numbers by the names of `gdd_book.checks.calibration.STATISTICS`, of the bottom layer, the top, or means."""
        local, shared = state
        norms = [(atoms**2).sum(axis=(1, 2, 3)) for atoms in shared.dictionaries]
        return layer_statistics(layer_state(state, self.model, 0), data, self.model.shapes()[0]) | {
            "active blocks": float((local.z != EMPTY).mean()),
            "blocks alike": float(np.mean([blocks_alike(z) for z in (*local.positions, local.z)])),
            "log gamma_d": float(np.mean([np.log(each).mean() for each in shared.gamma_d])),
            "log atom norm": float(np.mean([np.log(each).mean() for each in norms])),
            "log weights": float(np.log1p((local.w**2).sum())),
        }


def joint_step(state: JointState, data: LayerData, case: JointCase, key: Key) -> JointState:
    """One compiled sweep."""
    return joint_sweep(state, data, case.model, case.refinement, key)[0]


def joint_plain_step(pieces: Pieces = CORRECT) -> Step:
    """Build a step from exchangeable pieces, through the compiled image pass if only the dictionary's is exchanged."""

    def step(state: JointState, data: LayerData, case: JointCase, key: Key) -> JointState:
        model, refinement = case.model, case.refinement
        if pieces._replace(dictionary=CORRECT.dictionary) == CORRECT:
            state = state._replace(local=local_pass(state, data, model, refinement, key)[0])
        else:
            state = plain_local_pass(state, data, model, refinement, key, pieces)
        return draw_joint_shared(state, data, model, refinement, key, pieces)

    return step
