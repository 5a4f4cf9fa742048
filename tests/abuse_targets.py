"""Every public function with arguments that work, and for each argument the strategy that replaces it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import abuse_values as bad
import numpy as np
import xarray as xr
from hypothesis import strategies as st
from tiny import layer
from tiny_joint import refinement, top

import gdd
from gdd.base.axes import BLOCKS, DICTIONARY, IMAGE, IMAGES, MAPS
from gdd.data import contrast, datasets
from gdd.evaluate import classify, filling, matching, sharpness
from gdd.evaluate.tuning import SvmProtocol
from gdd.inference import generation, interpolation, joint_inference, layerwise
from gdd.inference.deconvolution import deconvolve
from gdd.inference.features import one_step_codes, one_step_features, unfold
from gdd.inference.joint_inference import Chain
from gdd.model import convolution, pooling
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, Pruning, RefinementSpec, layer_shape
from gdd.projection import collapse as projection
from gdd_book import experiments, figures, paper_values, records
from gdd_book.pages import counts

SIZE, CHAIN = (11, 15), {"burn_in": 1, "collect": 2, "seed": 3}
#: atoms as wide as the paper's for MNIST, for which other tests compile kernels anyway; the rest is tiny
BOTTOM = partial(layer, 2, (8, 8), (3, 3))


#: the functions under test, as `targets` lists them; apart, so that collecting tests computes nothing
NAMES = (
    "LayerSpec", "ModelSpec", "ChainSpec", "Pruning", "RefinementSpec", "SvmProtocol", "layer_shape", "counts",
    "planted", "load", "class_names", "pool_sum", "max_pool", "max_blocks", "average_pool", "cut_into_blocks",
    "repeat_blocks", "spread", "block_grid", "block_places", "one_hot", "unpool", "blocks_of", "synthesise",
    "correlate", "correlate_with_maps", "stride", "projected_shapes", "threshold", "normalise_contrast",
    "one_step_features", "one_step_codes", "unfold", "stack_features", "fit_svm", "predict", "error", "hide_at_random",
    "hide_halves", "hidden_error", "fill_by_neighbour", "fill_by_pca", "choose_components", "match_atoms",
    "high_frequency_share", "gradient_kurtosis", "show_atoms", "show_pictures", "show_grids", "records.find",
    "records.every", "defaults", "paper_values", "pretrain", "refine", "project_model", "project_refined", "infer",
    "infer_refined", "deconvolve", "interpolate_joint", "interpolate_one_layer", "infer_jointly", "infer_layers",
    "draw_from_prior", "render_local", "vote_positions", "vote_positions_by_weight", "project", "render_projected",
    "blocks_following",
)  # fmt: skip


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
        images=images, mask=np.indices(images.shape).sum(0) % 3 > 0, model=model, fitted=fitted, refined=refined,
        atoms=gdd.project_model(fitted), refinement=refinement(fixed=2.0), shared=refined.state.shared,
        local=refined.state.local, maps=random.standard_normal((3, 2, 5, 6)), z=z, w=np.where(z < 0, 0.0, 1.0),
        dictionary=random.standard_normal((2, 1, 3, 3)), upper=random.standard_normal((3, 2, 2, 2)),
        upper_maps=random.standard_normal((3, 3, 2, 2)), labels=np.arange(24) % 2,
        features=random.standard_normal((24, 2, 3)) + (np.arange(24) % 2)[:, None, None],
    )  # fmt: skip


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


def _fit(features, labels, seed, **protocol):
    return classify.fit_svm(features, labels, SvmProtocol(**(QUICK | protocol)), seed).vectors


def _predict(features):
    w = world()
    return _fitted_svm().predict(features) if features is not w.features else w.labels


@cache
def _fitted_svm():
    w = world()
    return classify.fit_svm(w.features, w.labels, SvmProtocol(**QUICK))


QUICK = {"costs": (1.0,), "gammas": (1.0,), "folds": 2, "tune_on": 12, "landmarks": 0, "scaling": "overall"}
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
    "tolerance": st.floats(1e-3, 0.5) | bad.numbers,
})  # fmt: skip
#: of those that fit the images all have layers of the same widths: other widths would compile kernels of their own
models = st.sampled_from([
    _model(), gdd.MNIST, None, "MNIST", ModelSpec((top(2),), (6, 5), 2), ModelSpec((top(10**6),), SIZE),
    ModelSpec((BOTTOM(), top(2, (2, 1))), SIZE),
])  # fmt: skip


def _arrays(w) -> dict[str, st.SearchStrategy]:
    """Changed arrays by the name of their argument."""
    return {
        "images": bad.arrays(w.images, IMAGES), "truth": bad.arrays(w.images, IMAGES),
        "train": bad.arrays(np.concatenate([w.images] * 2), IMAGES), "mask": bad.masks(w.images.shape),
        "filled": bad.arrays(w.images, IMAGES), "atoms": bad.arrays(w.atoms.values, DICTIONARY),
        "dictionary": bad.arrays(w.dictionary, DICTIONARY), "maps": bad.arrays(w.maps, MAPS),
        "z": bad.arrays(w.z, BLOCKS), "w": bad.arrays(w.w, BLOCKS), "upper": bad.arrays(w.upper, DICTIONARY),
        "upper_maps": bad.arrays(w.upper_maps, MAPS), "features": bad.arrays(w.features, (IMAGE, "a", "b")),
        "labels": bad.arrays(w.labels, (IMAGE,)) | bad.arrays(np.array(list("ab") * 12), (IMAGE,)),
    }  # fmt: skip


@cache
def targets() -> dict[str, Target]:
    """Every function under test, by name."""
    w = world()
    a = _arrays(w)
    new = {"images": a["images"].filter(lambda images: not isinstance(images, list)).map(bad.single)}
    lengths = {name: st.sampled_from([0, 1, 2, -1]) | bad.numbers.filter(_short) for name in ("burn_in", "collect")}
    run = lengths | {"seed": bad.seeds}
    shared = st.sampled_from([None, w.local, w.shared._replace(dictionaries=w.shared.dictionaries[:1]), w.shared])
    others = bad.numbers | st.sampled_from([w.fitted, w.refined])
    joint = {"model": w.model, "shared": w.shared, "refinement": w.refinement}
    joint_wrong = {"model": models, "shared": shared, "refinement": bad.numbers | st.just(refinement(IMAGE))}
    positions = np.zeros(w.upper.shape, int)
    vote = {
        "images": w.images[:3, :, :7, :8].astype(float), "dictionary": w.dictionary, "z": w.z, "w": w.w,
        "gamma_e": np.ones((1, 1)), "pool": (2, 2), "upper_dictionary": w.upper, "upper_maps": w.upper_maps,
    }  # fmt: skip
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
            "project_model": Target(gdd.project_model, lambda: {"fitted": w.fitted}, {"fitted": others}),
            "project_refined": Target(gdd.project_refined, lambda: {"refined": w.refined}, {"refined": others}),
            "infer": Target(
                gdd.infer, lambda: {"fitted": w.fitted, "atoms": w.atoms, "images": w.images, **CHAIN},
                {"fitted": others, "atoms": a["atoms"], **new, **run},
            ),
            "infer_refined": Target(
                gdd.infer_refined, lambda: {"refined": w.refined, "atoms": w.atoms, "images": w.images, **CHAIN},
                {"refined": others, "atoms": a["atoms"], **new, **run},
            ),
            "deconvolve": Target(
                deconvolve, lambda: {"images": w.images, "atoms": w.atoms, "stride": (3, 3), "gamma_e": 2.0,
                                     "gamma_w": 1.0, **CHAIN},
                {**new, "atoms": a["atoms"], "stride": bad.sizes, "gamma_e": bad.reals,
                 "gamma_w": bad.reals, "first_image": bad.counts, "trace": st.booleans(),
                 "start": bad.arrays(np.zeros((6, 2, 2, 2)), MAPS), **run},
            ),
            "interpolate_joint": Target(
                interpolation.interpolate_joint, lambda: {"images": w.images, "mask": w.mask, **joint, **CHAIN},
                {**new, "mask": a["mask"], "truth": a["truth"], "draws": bad.counts, **joint_wrong,
                 "warm_up": bad.counts, "gamma_e": bad.reals, **run}, ("hidden_error",),
            ),
            "interpolate_one_layer": Target(
                interpolation.interpolate_one_layer,
                lambda: {"images": w.images, "mask": w.mask, "layer": w.fitted.layers[0], **CHAIN},
                {**new, "mask": a["mask"], "truth": a["truth"], "draws": bad.counts,
                 "layer": others, **run}, ("hidden_error",),
            ),
            "infer_jointly": Target(
                joint_inference.infer_jointly, lambda: {"images": w.images, **joint, "chain": Chain(1, 1)},
                {**new, **joint_wrong, "gamma_e": bad.reals,
                 "chain": st.builds(Chain, *lengths.values(), bad.seeds, bad.counts) | bad.numbers},
            ),
            "infer_layers": Target(
                layerwise.infer_layers, lambda: {"fitted": w.fitted, "images": w.images, **CHAIN},
                {"fitted": others, **new, **run},
            ),
            "draw_from_prior": Target(
                generation.draw_from_prior, lambda: {"images": 2, **joint, "generator": np.random.default_rng(0)},
                {"images": bad.counts, **joint_wrong, "generator": bad.numbers},
            ),
            "render_local": Target(
                generation.render_local, lambda: {"local": w.local, "model": w.model, "shared": w.shared},
                {"local": others, "model": models, "shared": shared},
            ),
            "vote_positions": Target(
                projection.vote_positions, lambda: vote,
                {"images": bad.arrays(vote["images"], IMAGES), "dictionary": a["dictionary"], "z": a["z"], "w": a["w"],
                 "gamma_e": bad.arrays(vote["gamma_e"], IMAGES[:2]), "pool": bad.sizes, "upper_dictionary": a["upper"],
                 "upper_maps": a["upper_maps"], "mask": bad.masks(vote["images"].shape)}, ("share",),
            ),
            "vote_positions_by_weight": Target(
                projection.vote_positions_by_weight,
                lambda: {"z": w.z, "upper_dictionary": w.upper, "upper_maps": w.upper_maps, "map_size": (5, 6),
                         "pool": (2, 2)},
                {"z": a["z"], "upper_dictionary": a["upper"], "upper_maps": a["upper_maps"], "map_size": bad.sizes,
                 "pool": bad.sizes}, ("share",),
            ),
            "project": Target(
                projection.project,
                lambda: {"dictionaries": [w.dictionary, w.upper], "pools": [(2, 2)], "positions": [positions]},
                {"dictionaries": st.tuples(a["dictionary"], a["upper"]) | bad.numbers,
                 "pools": st.lists(bad.sizes, max_size=2) | bad.numbers,
                 "positions": st.lists(bad.arrays(positions, DICTIONARY), max_size=2) | bad.numbers},
            ),
            "render_projected": Target(
                projection.render_projected,
                lambda: {"projected": w.dictionary, "top_maps": w.maps, "step": (2, 2), "image_size": (5, 6)},
                {"projected": a["dictionary"], "top_maps": a["maps"], "step": bad.sizes, "image_size": bad.sizes},
            ),
            "blocks_following": Target(
                projection.blocks_following,
                lambda: {"positions": positions, "upper_dictionary": w.upper, "upper_maps": w.upper_maps},
                {"positions": bad.arrays(positions, DICTIONARY), "upper_dictionary": a["upper"],
                 "upper_maps": a["upper_maps"]},
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
             "tolerance": bad.reals},
        ),
        "SvmProtocol": Target(
            SvmProtocol, dict,
            {"costs": st.lists(bad.reals, max_size=2) | bad.numbers, "gammas": st.lists(bad.reals, max_size=2),
             "folds": bad.counts, "tune_on": bad.counts, "landmarks": bad.counts, "scaling": bad.words},
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
        "stride": Target(projection.stride, lambda: None, {"pools": st.lists(bad.sizes, max_size=3) | bad.numbers}),
        "projected_shapes": Target(
            projection.projected_shapes, lambda: {"atom_sizes": [(8, 8), (6, 6)], "pools": [(3, 3)]},
            {"atom_sizes": st.lists(bad.sizes, max_size=3) | bad.numbers, "pools": st.lists(bad.sizes, max_size=2)},
        ),
        "threshold": Target(
            projection.threshold, lambda: {"atoms": w.atoms}, {"atoms": a["atoms"], "share": bad.reals}
        ),
    }  # fmt: skip


def _functions(w, a) -> dict[str, Target]:
    fill = {"images": w.images, "mask": w.mask, "train": np.concatenate([w.images] * 2)}
    fill_wrong = {"images": a["images"], "mask": a["mask"], "train": a["train"]}
    train = {"train_features": w.features, "train_labels": w.labels}
    train |= {"test_features": w.features, "test_labels": w.labels}
    few, many = [st.integers(0, 3)] * 4, [st.sampled_from((1, *bad.HUGE))] * 4
    shape = {"shape": st.tuples(*few) | st.tuples(*many) | bad.sizes}
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
        "stack_features": Target(
            layerwise.stack_features, lambda: {"parts": [xr.DataArray(w.features, dims=(IMAGE, "a", "b"))]},
            {"parts": st.lists(a["features"], max_size=2) | bad.numbers,
             "training": st.lists(a["features"], max_size=2) | bad.numbers},
        ),
        "fit_svm": Target(
            _fit, lambda: {"features": w.features, "labels": w.labels, "seed": 0},
            {"features": a["features"], "labels": a["labels"], "seed": bad.seeds, "tune_on": st.integers(2, 30),
             "landmarks": st.integers(0, 40),
             "folds": st.integers(2, 12), "costs": st.tuples(st.floats(1e-6, 1e6)),
             "gammas": st.tuples(st.floats(1e-6, 1e6)), "scaling": st.sampled_from(["feature", "overall"])},
        ),
        "predict": Target(_predict, lambda: {"features": w.features}, {"features": a["features"]}),
        "error": Target(
            partial(classify.error, protocol=SvmProtocol(**QUICK)), lambda: train,
            {"train_features": a["features"], "train_labels": a["labels"], "test_features": a["features"],
             "test_labels": a["labels"], "seed": bad.seeds, "protocol": bad.numbers},
        ),
        "hide_at_random": Target(
            interpolation.hide_at_random, lambda: {"shape": (2, 1, 3, 3), "seed": 0}, {**shape, "seed": bad.seeds}
        ),
        "hide_halves": Target(interpolation.hide_halves, lambda: None, shape),
        "hidden_error": Target(
            interpolation.hidden_error, lambda: {"filled": w.images, "truth": w.images, "mask": w.mask},
            {"filled": a["filled"], "truth": a["truth"], "mask": a["mask"]}, ("",),
        ),
        "fill_by_neighbour": Target(
            filling.fill_by_neighbour, lambda: dict(fill), {**fill_wrong, "neighbours": bad.counts}
        ),
        "fill_by_pca": Target(
            filling.fill_by_pca, lambda: fill | {"components": 2}, {**fill_wrong, "components": bad.counts}
        ),
        "choose_components": Target(
            filling.choose_components, lambda: {"train": fill["train"], "mask": w.mask, "candidates": (1, 2)},
            {"train": a["train"], "mask": a["mask"], "candidates": st.lists(bad.counts, max_size=2) | bad.numbers},
        ),
        "match_atoms": Target(
            matching.match_atoms, lambda: {"found": w.dictionary, "true": w.dictionary, "reach": 1},
            {"found": a["dictionary"], "true": a["dictionary"], "reach": bad.counts},
        ),
        "high_frequency_share": Target(
            sharpness.high_frequency_share, lambda: None, {"atoms": a["dictionary"]}, ("",)
        ),
        "gradient_kurtosis": Target(sharpness.gradient_kurtosis, lambda: None, {"atoms": a["dictionary"]}, ("",)),
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
