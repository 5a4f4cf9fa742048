"""Every public function with arguments that work, and for each argument the strategy that replaces it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import abuse_values as bad
import numpy as np
from hypothesis import strategies as st
from tiny import layer
from tiny_joint import refinement, top

import gdd
from gdd import projection
from gdd.base.axes import BLOCKS, DICTIONARY, IMAGE, IMAGES, MAPS
from gdd.data import contrast, datasets
from gdd.inference.deconvolution import deconvolve
from gdd.inference.features import one_step_codes, one_step_features, unfold
from gdd.model import convolution, pooling
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, Pruning, RefinementSpec, layer_shape
from gdd_book import experiments, figures, paper_values, records
from gdd_book.pages import counts

SIZE, CHAIN = (11, 15), {"burn_in": 1, "collect": 2, "seed": 3}
#: atoms as wide as the paper's for MNIST, for which other tests compile kernels anyway; the rest is tiny
BOTTOM = partial(layer, 2, (8, 8), (3, 3))


#: the functions under test, as `targets` lists them; apart, so that collecting tests computes nothing
NAMES = (
    "LayerSpec", "ModelSpec", "ChainSpec", "Pruning", "RefinementSpec", "layer_shape", "counts", "planted", "load",
    "class_names", "pool_sum", "max_pool", "max_blocks", "average_pool", "cut_into_blocks", "repeat_blocks", "spread",
    "block_grid", "block_places", "one_hot", "unpool", "blocks_of", "synthesise", "correlate", "correlate_with_maps",
    "threshold", "normalise_contrast", "one_step_features", "one_step_codes", "unfold", "show_atoms", "show_pictures",
    "show_grids", "records.find", "records.every", "defaults", "paper_values", "pretrain", "refine", "project_model",
    "project_refined", "infer", "infer_refined", "deconvolve", "render_projected",
)


class Target(NamedTuple):
    """A function, arguments that work (None: all are replaced), what takes their place; where results may hold NaN."""

    call: Callable
    right: Callable[[], dict | None]
    wrong: dict[str, st.SearchStrategy]
    nan: tuple[str, ...] = ()


@cache
def world() -> SimpleNamespace:
    """One small model, pretrained and refined, and arrays that fit it."""
    random = np.random.default_rng(5)
    images = random.random((6, 1, *SIZE), np.float32)
    model = ModelSpec((BOTTOM(), top(2, (1, 2))), SIZE)
    chain = ChainSpec(2, 2, 1)
    fitted = gdd.pretrain(images, model, chain)
    refined = gdd.refine(images, fitted.model, chain, refinement(fixed=2.0), start=fitted)
    z = np.full((3, 2, 3, 3), -1, np.int16)
    z[:, :, 0, 1] = 2
    return SimpleNamespace(
        images=images, fitted=fitted, refined=refined, atoms=gdd.project_model(fitted),
        maps=random.standard_normal((3, 2, 5, 6)), z=z, w=np.where(z < 0, 0.0, 1.0),
        dictionary=random.standard_normal((2, 1, 3, 3)), features=random.standard_normal((24, 2, 3)),
    )


def _chain(**fields) -> ChainSpec:
    return ChainSpec(**({"burn_in": 1, "collect": 1} | fields))


def _model(**fields) -> ModelSpec:
    return ModelSpec((LayerSpec(2, (8, 8), (3, 3), **fields), top(2, (1, 2))), SIZE)


def _pretrain(images, mask, model, chain, priors, folder=None):
    chain = _chain(**chain) if isinstance(chain, dict) else chain
    return gdd.pretrain(images, _model(**priors) if model is None else model, chain, mask, folder).layers[-1].traces


def _refine(images, mask, model, chain, added, start):
    added = RefinementSpec(**added) if isinstance(added, dict) else added
    chain = _chain(**chain) if isinstance(chain, dict) else chain
    return gdd.refine(images, model, chain, added, start, mask).traces


def _layer(atoms, atom_size, pool, pooling, joint_dictionary, **precision):
    return LayerSpec(atoms, atom_size, pool, pooling, Precision(**precision), joint_dictionary=joint_dictionary)


precisions = st.builds(
    Precision, st.sampled_from([(), (IMAGE,)]), fixed=st.floats(1e-12, 1e12), shape=st.floats(1e-12, 1e12),
    rate=st.floats(1e-12, 1e12),
)  # fmt: skip
chains = st.fixed_dictionaries({}, optional={
    "seed": bad.seeds, "burn_in": st.sampled_from([0, 2, -1, None, 1.5]),
    "collect": st.sampled_from([1, 0, "1", np.int8(2)]),
    "scale_every": st.sampled_from([0, 1, -1, 2**31]), "shift_every": st.sampled_from([0, 1, 2, None]),
    "start": bad.words, "pruning": st.sampled_from([None, Pruning(0, 1, 1.5), 3]),
})  # fmt: skip
priors = st.fixed_dictionaries({}, optional={
    "gamma_e": precisions | bad.numbers, "gamma_d": st.builds(Precision, fixed=st.floats(1e-12, 1e12)),
    "gamma_w": st.builds(Precision, fixed=st.floats(1e-12, 1e12)) | st.builds(Precision, shape=st.floats(1e-12, 1e12)),
})  # fmt: skip
added = st.fixed_dictionaries({}, optional={
    "noise": precisions | bad.numbers, "ceiling": bad.reals, "empty_blocks": st.booleans() | bad.numbers,
    "tolerance": st.floats(1e-3, 0.5) | bad.numbers, "flips": st.integers(0, 2) | bad.numbers,
})  # fmt: skip
#: of those that fit the images all have layers of the same widths: other widths would compile kernels of their own
models = st.sampled_from([
    _model(), gdd.MNIST, None, "MNIST", ModelSpec((top(2),), (6, 5), 2), ModelSpec((top(10**6),), SIZE),
    ModelSpec((BOTTOM(), top(2, (2, 1))), SIZE),
])  # fmt: skip


def _arrays(w) -> dict[str, st.SearchStrategy]:
    """Changed arrays by the name of their argument."""
    return {
        "images": bad.arrays(w.images, IMAGES), "mask": bad.masks(w.images.shape),
        "atoms": bad.arrays(w.atoms.values, DICTIONARY), "dictionary": bad.arrays(w.dictionary, DICTIONARY),
        "maps": bad.arrays(w.maps, MAPS), "z": bad.arrays(w.z, BLOCKS), "w": bad.arrays(w.w, BLOCKS),
        "features": bad.arrays(w.features, (IMAGE, "a", "b")),
    }  # fmt: skip


@cache
def targets() -> dict[str, Target]:
    """Every function under test, by name."""
    w = world()
    a = _arrays(w)
    new = {"images": a["images"].filter(lambda images: not isinstance(images, list)).map(bad.single)}
    lengths = {name: st.sampled_from([0, 1, 2, -1]) | bad.numbers.filter(_short) for name in ("burn_in", "collect")}
    run = lengths | {"seed": bad.seeds}
    others = bad.numbers | st.sampled_from([w.fitted, w.refined])
    return (
        _specs() | _pooling(w, a) | _functions(w, a) | _tables()
        | {
            "pretrain": Target(
                _pretrain, lambda: {"images": w.images, "mask": None, "model": None, "chain": {}, "priors": {}},
                {"images": a["images"], "mask": a["mask"], "model": models, "chain": chains, "priors": priors,
                 "folder": st.sampled_from([3, "/proc/none", b"x", "\0"])},
            ),
            "refine": Target(
                _refine, lambda: {"images": w.images, "mask": None, "model": w.fitted.model, "chain": {}, "added": {},
                                  "start": w.fitted},
                {"images": a["images"], "mask": a["mask"], "model": models, "chain": chains, "added": added,
                 "start": st.sampled_from([None, w.refined, 3, w.fitted])},
            ),
            "project_model": Target(gdd.project_model, lambda: {"trained": w.fitted}, {"trained": others}),
            "project_refined": Target(gdd.project_refined, lambda: {"trained": w.refined}, {"trained": others}),
            "infer": Target(
                gdd.infer, lambda: {"trained": w.fitted, "atoms": w.atoms, "images": w.images, **CHAIN},
                {"trained": others, "atoms": a["atoms"], **new, **run},
            ),
            "infer_refined": Target(
                gdd.infer_refined, lambda: {"trained": w.refined, "atoms": w.atoms, "images": w.images, **CHAIN},
                {"trained": others, "atoms": a["atoms"], **new, **run},
            ),
            "deconvolve": Target(
                deconvolve, lambda: {"images": w.images, "atoms": w.atoms, "stride": (3, 3), "gamma_e": 2.0,
                                     "gamma_w": 1.0, **CHAIN},
                {**new, "atoms": a["atoms"], "stride": bad.sizes, "gamma_e": bad.reals,
                 "gamma_w": bad.reals, "first_image": bad.counts, "trace": st.booleans(),
                 "start": bad.arrays(np.zeros((6, 2, 2, 2)), MAPS), **run},
            ),
            "render_projected": Target(
                projection.render_projected,
                lambda: {"projected": w.dictionary, "top_maps": w.maps, "step": (2, 2), "image_size": (5, 6)},
                {"projected": a["dictionary"], "top_maps": a["maps"], "step": bad.sizes, "image_size": bad.sizes},
            ),
        }
    )  # fmt: skip


def _short(value) -> bool:
    """Whether a length is not one that would rightly run for years."""
    return not (isinstance(value, int) and 20 < value < 2**31)


def _specs() -> dict[str, Target]:
    return {
        "LayerSpec": Target(
            _layer,
            lambda: {"atoms": 3, "atom_size": (3, 3), "pool": (2, 2), "pooling": "max", "joint_dictionary": False},
            {"atoms": bad.counts, "atom_size": bad.sizes, "pool": bad.sizes, "pooling": bad.words, "shape": bad.reals,
             "joint_dictionary": bad.numbers, "axes": st.tuples(bad.words) | bad.words, "rate": bad.reals,
             "fixed": bad.reals},
        ),
        "ModelSpec": Target(
            lambda **given: ModelSpec(**given).shapes(),
            lambda: {"layers": (layer(), top()), "image_size": SIZE, "planes": 1},
            {"layers": st.lists(st.sampled_from([layer(), top(), 3, None]), max_size=3) | bad.numbers,
             "image_size": bad.sizes, "planes": bad.counts},
        ),
        "ChainSpec": Target(
            ChainSpec, dict,
            {"burn_in": bad.counts, "collect": bad.counts, "seed": bad.seeds, "pruning": bad.numbers,
             "start": bad.words,
             "scale_every": bad.counts, "shift_every": bad.counts, "single_precision": bad.numbers},
        ),
        "Pruning": Target(Pruning, dict, {"start": bad.counts, "every": bad.counts, "share": bad.reals}),
        "RefinementSpec": Target(
            RefinementSpec, dict,
            {"noise": precisions | bad.numbers, "ceiling": bad.reals, "empty_blocks": bad.numbers,
             "tolerance": bad.reals, "flips": bad.counts},
        ),
        "layer_shape": Target(
            layer_shape, lambda: {"layer": layer(), "input_size": SIZE, "planes": 1},
            {"layer": bad.numbers, "input_size": bad.sizes, "planes": bad.counts},
        ),
        "counts": Target(
            lambda **given: (counts.printed(**given), counts.kept(**given)), lambda: {"model": gdd.MNIST, "images": 5},
            {"model": bad.numbers | st.just(gdd.CALTECH101), "images": bad.counts},
        ),
        "planted": Target(
            datasets.planted,
            lambda: {"seed": 0, "images": 3, "size": (6, 7), "atoms": 2, "atom_size": (3, 3), "pool": (2, 2)},
            {"seed": bad.seeds, "images": bad.counts, "size": bad.sizes, "planes": bad.counts, "atoms": bad.counts,
             "atom_size": bad.sizes, "pool": bad.sizes, "active": bad.reals, "noise_sd": bad.reals},
        ),
        "load": Target(
            datasets.load, lambda: {"name": "digits", "n": 3},
            {"name": bad.words, "split": bad.words, "n": bad.counts, "seed": bad.seeds, "per_class": bad.counts,
             "size": bad.sizes, "colour": st.booleans(),
             "classes": st.lists(st.sampled_from(["1", 3, "x", None]), max_size=3) | bad.numbers},
        ),
        "class_names": Target(datasets.class_names, lambda: {"name": "digits"}, {"name": bad.words}),
    }  # fmt: skip


def _pooling(w, a) -> dict[str, Target]:
    pools, maps = {"pool": bad.sizes}, {"maps": a["maps"], "pool": bad.sizes}
    of_maps = {
        name: Target(getattr(pooling, name), lambda: {"maps": w.maps, "pool": (2, 2)}, maps)
        for name in ("pool_sum", "max_pool", "max_blocks", "average_pool", "cut_into_blocks")
    }
    of_values = {
        name: Target(getattr(pooling, name), lambda: {"values": w.maps, "pool": (2, 2)}, {"values": a["maps"], **pools})
        for name in ("repeat_blocks", "spread")
    }
    of_sizes = {
        name: Target(
            getattr(pooling, name), lambda: {"map_size": (5, 6), "pool": (2, 2)}, {"map_size": bad.sizes, **pools}
        )
        for name in ("block_grid", "block_places")
    }
    blocks = {"z": w.z, "map_size": (5, 6), "pool": (2, 2)}
    return of_maps | of_values | of_sizes | {
        "one_hot": Target(pooling.one_hot, lambda: blocks, {"z": a["z"], "map_size": bad.sizes, **pools}),
        "unpool": Target(
            pooling.unpool, lambda: blocks | {"w": w.w}, {"z": a["z"], "w": a["w"], "map_size": bad.sizes, **pools}
        ),
        "blocks_of": Target(
            pooling.blocks_of, lambda: {"maps": pooling.unpool(w.z, w.w, (5, 6), (2, 2)), "pool": (2, 2)}, maps
        ),
        "synthesise": Target(
            convolution.synthesise, lambda: {"dictionary": w.dictionary, "maps": w.maps},
            {"dictionary": a["dictionary"], "maps": a["maps"]},
        ),
        "correlate": Target(
            convolution.correlate, lambda: {"images": w.images, "dictionary": w.dictionary},
            {"images": a["images"], "dictionary": a["dictionary"]},
        ),
        "correlate_with_maps": Target(
            convolution.correlate_with_maps, lambda: {"images": w.images[:3], "maps": w.maps},
            {"images": bad.arrays(w.images[:3], IMAGES), "maps": a["maps"]},
        ),
        "threshold": Target(
            projection.threshold, lambda: {"atoms": w.atoms}, {"atoms": a["atoms"], "share": bad.reals}
        ),
    }  # fmt: skip


def _functions(w, a) -> dict[str, Target]:
    return {
        "normalise_contrast": Target(
            contrast.normalise_contrast, lambda: {"images": w.images, "window": 3},
            {"images": a["images"], "window": bad.counts, "sigma": bad.reals},
        ),
        "one_step_features": Target(
            one_step_features, lambda: {"images": w.images, "dictionary": w.dictionary, "pool": (2, 2), "gamma_e": 2.0,
                                        "gamma_w": 1.0},
            {"images": a["images"], "dictionary": a["dictionary"], "pool": bad.sizes, "gamma_e": bad.reals,
             "gamma_w": bad.reals},
        ),
        "one_step_codes": Target(
            one_step_codes, lambda: {"images": w.images, "atoms": w.atoms, "stride": (3, 3), "gamma_e": 2.0,
                                     "gamma_w": 1.0},
            {"images": a["images"], "atoms": a["atoms"], "stride": bad.sizes, "gamma_e": bad.reals,
             "gamma_w": bad.reals},
        ),
        "unfold": Target(unfold, lambda: {"features": w.features}, {"features": a["features"]}),
    }  # fmt: skip


def _tables() -> dict[str, Target]:
    pictures = st.lists(bad.arrays(np.eye(4), ("row", "col")), max_size=2) | bad.numbers
    values = st.one_of(st.integers(-5, 5), bad.numbers, bad.words, st.lists(bad.numbers, max_size=2))
    names = ["n_train", "seed", "codes", "data", "burn_in", "noise_precision", "n", "settings", "images"]
    names = st.sampled_from(names)
    return {
        "show_atoms": Target(
            figures.show_atoms, lambda: {"dictionary": np.ones((2, 1, 3, 3))},
            {"dictionary": bad.arrays(np.ones((2, 1, 3, 3)), DICTIONARY), "plane": bad.counts,
             "labels": st.lists(st.text(max_size=2), max_size=3) | bad.numbers},
        ),
        "show_pictures": Target(
            figures.show_pictures, lambda: {"titles": ["a"], "pictures": [np.eye(4)]},
            {"titles": st.lists(st.text("ab", max_size=3), max_size=2), "pictures": pictures, "columns": bad.counts},
        ),
        "show_grids": Target(
            figures.show_grids, lambda: {"grids": [np.eye(4)], "titles": ["a"], "between": []},
            {"grids": pictures, "titles": st.lists(st.text("ab", max_size=3), max_size=2)},
        ),
        "records.find": Target(
            lambda experiment, scale, parameters: records.find(experiment, scale, **parameters),
            lambda: {"experiment": "mnist-error", "scale": "demo", "parameters": {"seed": 99}},
            {"experiment": bad.words | st.sampled_from(["planted", "bench"]), "scale": bad.words | st.just("paper"),
             "parameters": st.dictionaries(names, values, max_size=2)},
        ),
        "records.every": Target(records.every, lambda: None, {"experiment": bad.words}),
        "defaults": Target(
            experiments.defaults, lambda: {"name": "bench", "scale": "demo"}, {"name": bad.words, "scale": bad.words}
        ),
        "paper_values": Target(
            paper_values.fact, lambda: None, {"name": bad.words}
        ),
    }  # fmt: skip
