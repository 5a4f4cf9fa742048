"""Images with half their pixels missing, completed by every method and judged alike.

Methods that know no layers stand beside the models; all of them have seen the same training images.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from gdd.base.axes import COL, IMAGE, ROW
from gdd.evaluate.baselines import fill_by_neighbour, fill_by_pca
from gdd.inference.held import Chain, shared_of
from gdd.inference.interpolation import hidden_error, interpolate_joint, interpolate_one_layer
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined

MODELS = ("one layer", "two layers, pretrained", "two layers, refined")
NEIGHBOURS = 10


def baselines(word: str) -> tuple[str, ...]:
    """Names of the methods that know no layers; ``word`` is what the images show, for instance "digit"."""
    return ("left blank", f"mean training {word}", f"nearest training {word}", "10 nearest", "principal components")


def fill_plainly(
    test: xr.DataArray, mask: np.ndarray, train: xr.DataArray, components: int, word: str
) -> dict[str, np.ndarray]:
    """Images (image, plane, row, col) of every one of `baselines`; 0 where left blank.

    Parameters
    ----------
    test, train : (image, plane, row, col)
    mask : (image, plane, row, col) of bool, True = observed
    components : how many principal components, see `gdd.evaluate.baselines.choose_components`
    word : what the images show

    Notes
    -----
    *Source:* none in the paper. *Departs:* not applicable. *Checked:* tests/test_completion_pages.py.
    """
    filled = (
        np.zeros(test.shape),
        np.broadcast_to(train.values.mean(axis=0), test.shape),
        fill_by_neighbour(test, mask, train),
        fill_by_neighbour(test, mask, train, min(NEIGHBOURS, len(train))),
        fill_by_pca(test, mask, train, components),
    )
    return dict(zip(baselines(word), filled, strict=True))


def fill_by_models(
    test: xr.DataArray, mask: np.ndarray, fitted: Pretrained, refined: Refined, chain: Chain, progress, label: str
) -> dict[str, np.ndarray]:
    """Images (image, plane, row, col) of every one of `MODELS`: posterior means given what is observed.

    Parameters
    ----------
    test : (image, plane, row, col)
    mask : (image, plane, row, col) of bool, True = observed
    fitted, refined : of two layers
    chain : lengths and seed, the same for all
    progress, label : ``progress(total, label)`` opens a bar

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 4, Fig. 2b and 4. *Departs:* `gdd.inference.interpolation.interpolate_joint`.
    *Checked:* tests/test_completion_pages.py.
    """
    sweeps = len(MODELS) * test.sizes[IMAGE] * (chain.burn_in + chain.collect)
    with progress(sweeps, label) as bar:
        one = interpolate_one_layer(test, mask, fitted.layers[0], chain, bar.step)
        noise = float(refined.state.local.gamma_e.mean())  # of both, as the pretrained layers have no common one
        two = [
            interpolate_joint(test, mask, fitted.model, shared, refined.refinement, chain, noise, bar.step)
            for shared in (shared_of(fitted), refined.state.shared)
        ]
    return {name: found.values for name, found in zip(MODELS, (one, *two), strict=True)}


def compare_filled(filled: Mapping[str, np.ndarray], test: xr.DataArray, mask: np.ndarray, examples: int) -> xr.Dataset:
    """Squared error on hidden pixels, (way, image), and the first ``examples`` pictures of every method.

    Parameters
    ----------
    filled : for every method its images (image, plane, row, col)
    test, mask : as in `fill_plainly`
    examples : number of pictures that are kept, of the first plane

    Notes
    -----
    *Source:* our own measure; the paper shows pictures. *Departs:* not applicable.
    *Checked:* tests/test_completion_pages.py.
    """
    errors = [hidden_error(pixels, test, mask) for pixels in filled.values()]
    return xr.Dataset({
        "hidden_error": (("way", IMAGE), np.array(errors, "f4")),
        "filled": (("way", "example", ROW, COL), np.array([part[:examples, 0] for part in filled.values()], "f4")),
        "mask": (("example", ROW, COL), mask[:examples, 0]),
    }, {"way": list(filled)})  # fmt: skip
