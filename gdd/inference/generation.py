"""Images generated from a joint model with known dictionaries.

The local part of a state is drawn, and `gdd.model.joint.layer_values` synthesises the images, without noise: from the
weak prior, by `gdd.model.joint.draw_joint_local`; or from how often each top coefficient was active in the training
images and with which weights, and from the positions of one of them.
"""

from __future__ import annotations

import numpy as np

from gdd.model.layer import draw_positions
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal


def resample_top(local: JointLocal, fitted: JointLocal, generator: np.random.Generator) -> JointLocal:
    """Redraw the top maps of ``local`` from each coefficient's marginal distribution over the images of a fitted state.

    Each (atom, row, col) is active as often as in the fitted images, with its weight in a random image where it is
    active.
    """
    images, fitted_images = len(local.z), len(fitted.z)
    z, w = np.full(local.z.shape, EMPTY, np.int16), np.zeros(local.w.shape)
    for place in np.ndindex(fitted.z.shape[1:]):
        index = (slice(None), *place)
        weights = fitted.w[index][fitted.z[index] != EMPTY]
        on = np.flatnonzero(generator.random(images) < len(weights) / fitted_images)
        z[(on, *place)] = 0
        w[(on, *place)] = generator.choice(weights, len(on)) if len(on) else 0.0
    return local._replace(z=z, w=w)


def positions_of_one_image(
    local: JointLocal, fitted: JointLocal, model: ModelSpec, refinement: RefinementSpec, generator: np.random.Generator
) -> JointLocal:
    """Redraw the positions of ``local``, each image from theta given those of one fitted image, chosen at random.

    Each image and map has its own theta, with a weak prior. Here a new image's theta is drawn given the positions of
    the fitted image, as if both shared it.
    """
    donor = generator.integers(0, len(fitted.z), len(local.z))
    below = zip(model.layers[:-1], model.shapes()[:-1], fitted.positions, strict=True)
    return local._replace(positions=tuple(
        draw_positions(len(donor), spec, shape, generator, refinement.empty_blocks, z[donor])
        for spec, shape, z in below
    ))
