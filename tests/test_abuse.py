"""Bad arguments at the public doors: a result or one of our own errors, never anything else. The same in every run.

Specs are tried in the ordinary run, estimators with ``-m slow -k bad_arguments``.
"""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import layer
from tiny_joint import top

import gdd
from gdd.base import checks
from gdd.base.axes import IMAGE
from gdd.base.checks import GddError
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, Pruning, RefinementSpec

#: sizes and counts that no machine holds; nothing here may be allocated
HUGE = (2**31 - 1, 2**31, 10**12, 2**63, 2**64, -(10**30), 10**400)
EDGES = (0, 1, -1, 0.0, -0.0, 1.0, 0.5, 1e-300, 1e-13, 1e13, 1e300, float("nan"), float("inf"), -float("inf"))
FOREIGN = (
    True, False, None, "", "3", "abc", "\udcff\x00", b"3", 1j, Fraction(1, 2), Decimal("1"), np.int8(3), np.uint8(200),
    np.float16(np.inf), np.float32(0.5), np.bool(True), [], [1], (), {}, {"a": 1}, object, range(3), [[1], [1, 2]],
)
numbers = st.one_of(
    st.sampled_from(EDGES), st.sampled_from(FOREIGN), st.sampled_from(HUGE), st.integers(-3, 12), st.floats(),
    st.builds(lambda: np.array(3.0)), st.builds(lambda: np.array([1.0, 2.0])),
)
counts = st.one_of(st.integers(-1, 4), numbers)
reals = st.one_of(st.floats(1e-12, 1e12), st.floats(0.1, 10), numbers)
sizes = st.one_of(
    st.tuples(st.integers(0, 4), st.integers(0, 4)), st.tuples(numbers, numbers), numbers,
    st.tuples(st.sampled_from(HUGE), st.sampled_from((1, 2, *HUGE))), st.builds(lambda: np.array([2, 2])),
    st.sampled_from([(3,), (2, 2, 2), [2, 2], "22", (200, 200), (1, 40000)]),
)
words = st.one_of(st.text(max_size=8), st.sampled_from(("image", "plane", "atom", "mean", "train")), numbers)
seeds = st.one_of(st.integers(0, 5), st.integers(-(2**70), 2**70), numbers)
precisions = st.builds(
    Precision, st.sampled_from([(), (IMAGE,)]), fixed=st.floats(1e-12, 1e12), shape=st.floats(1e-12, 1e12),
    rate=st.floats(1e-12, 1e12),
)
#: a length is not one that would rightly run for years
lengths = st.sampled_from([0, 1, 2, -1]) | numbers.filter(lambda n: not (isinstance(n, int) and 20 < n < 2**31))
folders = st.sampled_from([3, "/proc/none", b"x", "\0"])
PIXELS = np.random.default_rng(5).random((6, 11, 15)).astype(np.float32)

#: a call, arguments that work, and what takes their place
SPECS = {
    "LayerSpec": (
        lambda atoms, atom_size, pool, **given: LayerSpec(atoms, atom_size, pool, Precision(**given)),
        {"atoms": 3, "atom_size": (3, 3), "pool": (2, 2)},
        {"atoms": counts, "atom_size": sizes, "pool": sizes, "shape": reals, "axes": st.tuples(words) | words,
         "rate": reals, "fixed": reals},
    ),
    "ModelSpec": (
        lambda **given: ModelSpec(**given).shapes(), {"layers": (layer(), top()), "image_size": (11, 15), "planes": 1},
        {"layers": st.lists(st.sampled_from([layer(), top(), 3, None]), max_size=3) | numbers, "image_size": sizes,
         "planes": counts},
    ),
    "ChainSpec": (
        ChainSpec, {},
        {"burn_in": counts, "collect": counts, "seed": seeds, "pruning": numbers, "start": words,
         "single_precision": numbers},
    ),
    "Pruning": (Pruning, {}, {"start": counts, "every": counts, "share": reals}),
    "RefinementSpec": (RefinementSpec, {}, {"noise": precisions | numbers, "empty_blocks": numbers}),
    "OneStepSettings": (
        gdd.OneStepSettings, {},
        {"pool": sizes, "margin": counts, "second": numbers, "blur": reals, "noise_precision": reals,
         "weight_precision": reals, "learn_from": counts, "rescale": numbers},
    ),
    "SecondLayer": (
        gdd.SecondLayer, {},
        {"atoms": counts, "size": sizes, "pool": sizes, "noise_precision": reals, "weight_precision": reals},
    ),
    "Deformations": (
        lambda **given: gdd.Deformations(**given).transforms(), {},
        {"shift": reals, "turn": reals, "scale": reals, "shear": reals, "floor": reals},
    ),
}
ESTIMATORS = {
    "DeepDeconvolution": (
        lambda **given: gdd.DeepDeconvolution(**given).fit(PIXELS).transform(PIXELS),
        {"atoms": (4,), "pretrain": (1, 2), "infer": (1, 2), "verbose": False},
        {"atoms": st.lists(counts, max_size=3) | numbers, "image_size": sizes, "infer": st.tuples(lengths, lengths),
         "pretrain": st.tuples(lengths, lengths) | numbers, "refine": numbers, "random_state": seeds,
         "checkpoint": folders},
    ),
    "OneStepFeatures": (
        lambda **given: gdd.OneStepFeatures(**given).fit(PIXELS).transform(PIXELS),
        {"atoms": 4, "sweeps": (1, 2), "verbose": False},
        {"atoms": counts, "sizes": st.lists(sizes, max_size=2) | numbers, "whitening": numbers,
         "regions": st.lists(counts, max_size=3) | numbers, "settings": numbers,
         "sweeps": st.tuples(lengths, lengths) | numbers, "image_size": sizes, "random_state": seeds,
         "checkpoint": folders},
    ),
}
CASES = [*SPECS, *(pytest.param(name, marks=pytest.mark.slow) for name in ESTIMATORS)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_bad_arguments(name, monkeypatch):
    """On a machine of 256 MB: what needs more must be refused, on every machine alike."""
    monkeypatch.setattr(checks, "memory", lambda: 2**28)
    call, right, wrong = (SPECS | ESTIMATORS)[name]
    call(**right)
    chosen, refused = st.lists(st.sampled_from(sorted(wrong)), min_size=1, max_size=2, unique=True), []

    @settings(max_examples=20 if name in SPECS else 140, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data):
        arguments = right | {key: data.draw(wrong[key], key) for key in data.draw(chosen, "replaced")}
        try:
            answer = call(**arguments)
        except GddError as error:
            assert 20 < len(str(error)) < 2000
            refused.append(error)
        else:
            assert name in SPECS or np.isfinite(answer).all()

    run()
    assert refused
