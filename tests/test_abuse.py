"""Bad arguments at the public doors: a result or one of our own errors, never anything else.

``-m slow -k abuse`` runs all of it; specs have a few cases in the ordinary run too. The cases are the same in every
run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import abuse_values as bad
import numpy as np
import pytest
from abuse_values import GIVEN, answer_of
from hypothesis import given
from hypothesis import strategies as st
from tiny import layer
from tiny_joint import top

import gdd
from gdd.base import checks
from gdd.base.axes import DICTIONARY, IMAGE, IMAGES
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, Pruning, RefinementSpec

SIZE = (11, 15)


class Target(NamedTuple):
    """A function, arguments that work, and what takes their place."""

    call: Callable
    right: Callable[[], dict]
    wrong: Callable[[], dict[str, st.SearchStrategy]]


PIXELS = np.random.default_rng(5).random((6, 1, *SIZE), np.float32)
ATOMS = np.random.default_rng(6).standard_normal((2, 1, 8, 8)).astype(np.float32)


def _layer(atoms, atom_size, pool, **precision):
    return LayerSpec(atoms, atom_size, pool, Precision(**precision))


precisions = st.builds(
    Precision, st.sampled_from([(), (IMAGE,)]), fixed=st.floats(1e-12, 1e12), shape=st.floats(1e-12, 1e12),
    rate=st.floats(1e-12, 1e12),
)
#: those that fit the images have atoms of 8 x 8, whose kernels other tests have compiled
models = st.sampled_from([
    gdd.MNIST, None, "MNIST", ModelSpec((top(2),), (6, 5), 2), ModelSpec((top(10**6),), SIZE),
    *(ModelSpec((layer(2, (8, 8), (3, 3)), top(2, size)), SIZE) for size in ((1, 2), (2, 1))),
])
#: a length is not one that would rightly run for years
lengths = st.sampled_from([0, 1, 2, -1]) | bad.numbers.filter(lambda n: not (isinstance(n, int) and 20 < n < 2**31))


def _images() -> st.SearchStrategy:
    return bad.arrays(PIXELS, IMAGES)


TARGETS = {
    "LayerSpec": Target(
        _layer, lambda: {"atoms": 3, "atom_size": (3, 3), "pool": (2, 2)},
        lambda: {"atoms": bad.counts, "atom_size": bad.sizes, "pool": bad.sizes,
                 "shape": bad.reals, "axes": st.tuples(bad.words) | bad.words, "rate": bad.reals, "fixed": bad.reals},
    ),
    "ModelSpec": Target(
        lambda **given: ModelSpec(**given).shapes(),
        lambda: {"layers": (layer(), top()), "image_size": SIZE, "planes": 1},
        lambda: {"layers": st.lists(st.sampled_from([layer(), top(), 3, None]), max_size=3) | bad.numbers,
                 "image_size": bad.sizes, "planes": bad.counts},
    ),
    "ChainSpec": Target(
        ChainSpec, dict,
        lambda: {"burn_in": bad.counts, "collect": bad.counts, "seed": bad.seeds, "pruning": bad.numbers,
                 "start": bad.words, "single_precision": bad.numbers},
    ),
    "Pruning": Target(Pruning, dict, lambda: {"start": bad.counts, "every": bad.counts, "share": bad.reals}),
    "RefinementSpec": Target(
        RefinementSpec, dict,
        lambda: {"noise": precisions | bad.numbers, "empty_blocks": bad.numbers},
    ),
    "DeepDeconvolution": Target(
        lambda images, **given: gdd.DeepDeconvolution(**given).fit(images).transform(images),
        lambda: {"images": PIXELS, "atoms": (4,), "pretrain": (1, 2), "infer": (1, 2), "verbose": False},
        lambda: {"images": _images().filter(lambda images: getattr(images, "ndim", 0) > 2), "model": models,
                 "atoms": st.lists(bad.counts, max_size=3) | bad.numbers, "image_size": bad.sizes,
                 "pretrain": st.tuples(lengths, lengths) | bad.numbers, "infer": st.tuples(lengths, lengths),
                 "refine": bad.numbers,
                 "random_state": bad.seeds, "checkpoint": st.sampled_from([3, "/proc/none", b"x", "\0"])},
    ),
    "OneStepFeatures": Target(
        lambda images, **given: gdd.OneStepFeatures(**given).fit(images).transform(images),
        lambda: {"images": PIXELS, "atoms": 4, "sweeps": (1, 2), "verbose": False},
        lambda: {"images": _images().filter(lambda images: getattr(images, "ndim", 0) > 2),
                 "atoms": bad.counts | st.lists(bad.arrays(ATOMS, DICTIONARY), max_size=2),
                 "sizes": st.lists(bad.sizes, max_size=2) | bad.numbers, "whitening": bad.numbers,
                 "regions": st.lists(bad.counts, max_size=3) | bad.numbers, "settings": bad.numbers,
                 "sweeps": st.tuples(lengths, lengths) | bad.numbers, "image_size": bad.sizes,
                 "random_state": bad.seeds, "checkpoint": st.sampled_from([3, "/proc/none", b"x", "\0"])},
    ),
    "OneStepSettings": Target(
        gdd.OneStepSettings, dict,
        lambda: {"pool": bad.sizes, "margin": bad.counts, "second": bad.numbers, "blur": bad.reals,
                 "noise_precision": bad.reals, "weight_precision": bad.reals, "learn_from": bad.counts,
                 "rescale": bad.numbers},
    ),
    "SecondLayer": Target(
        gdd.SecondLayer, dict,
        lambda: {"atoms": bad.counts, "size": bad.sizes, "pool": bad.sizes, "noise_precision": bad.reals,
                 "weight_precision": bad.reals},
    ),
    "Deformations": Target(
        lambda **given: gdd.Deformations(**given).transforms(), dict,
        lambda: {"shift": bad.reals, "turn": bad.reals, "scale": bad.reals, "shear": bad.reals, "floor": bad.reals},
    ),
}


#: the chains of the others take minutes to compile
CASES = [(name, 20) for name in ("LayerSpec", "ModelSpec", "ChainSpec", "Pruning", "RefinementSpec")]
CASES += [(name, 20) for name in ("OneStepSettings", "SecondLayer", "Deformations")]
CASES += [pytest.param(name, 140, marks=pytest.mark.slow) for name in TARGETS]


@pytest.mark.parametrize(("name", "examples"), CASES)
def test_bad_arguments(name, examples, monkeypatch):
    """On a machine of 256 MB: what needs more must be refused, on every machine alike."""
    monkeypatch.setattr(checks, "memory", lambda: 2**28)
    target, answers = TARGETS[name], []
    assert answer_of(lambda: target.call(**target.right())) == "result"
    wrong = target.wrong()
    chosen = st.lists(st.sampled_from(sorted(wrong)), min_size=1, max_size=2, unique=True)

    @GIVEN(max_examples=examples)
    @given(st.data())
    def run(data):
        arguments = target.right() | {key: data.draw(wrong[key], key) for key in data.draw(chosen, "replaced")}
        answers.append(answer_of(lambda: target.call(**arguments)))

    run()
    assert "own error" in answers
