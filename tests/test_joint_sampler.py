"""The joint model's sampler as a whole, by the rungs and at the levels of tests/test_joint.py.

Wrong samplers are the shortcuts; which rung sees which is stated and asserted.
"""

import itertools

import numpy as np
import pytest
from agreement import FAILS, PASSES, p_value_of_counts
from scipy import stats
from tiny import every_z, layer, with_local
from tiny_joint import draw_joint, p_values_of_draws, refinement, top

from gdd.base.axes import IMAGE
from gdd.model.joint import layer_values
from gdd.model.layer import log_positions
from gdd.model.spec import ModelSpec
from gdd.model.state import EMPTY, JointLocal, JointShared, JointState, LayerData, of_images, with_block
from gdd.reference import joint_conditionals
from gdd.reference.joint_sweep import CORRECT, with_dictionary, with_weights
from gdd.reference.random import REFINE, Key, Stream
from gdd.reference.screening import mean_atom_images
from gdd.sampler.joint_sweep import local_pass
from gdd_book.checks.calibration import exact_start, geweke, holm
from gdd_book.checks.calibration_joint import JointCase, joint_step
from gdd_book.checks.shortcuts import SHORTCUTS

#: 4x5 maps under 2x2 blocks, ragged on the right; then 2x3 values
TWO = ModelSpec((layer(2, (2, 2), (2, 2)), top(2, (2, 2))), (5, 6))
#: 4x5 maps under 2x2 blocks, then 2x2 maps under 1x2 blocks, then 2x1 values
THREE = ModelSpec((layer(2, (2, 2), (2, 2)), layer(2, (1, 2), (1, 2)), top(2, (2, 1))), (5, 6))

CASES = {
    "two layers": JointCase(TWO, refinement(IMAGE), 2),
    "two layers, shared noise": JointCase(TWO, refinement(), 2),
    "two layers, empty blocks, masked": JointCase(TWO, refinement(IMAGE, empty_blocks=True), 2, 0.3),
    "two layers, dictionaries in turn": JointCase(TWO, refinement(IMAGE, dictionary_every=2), 2),
    "three layers": JointCase(THREE, refinement(IMAGE), 2),
    "three layers, empty blocks, masked": JointCase(THREE, refinement(IMAGE, empty_blocks=True), 2, 0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_exact_start(name):
    assert holm(exact_start(CASES[name], joint_step, 150, 2, seed=1)).min() > PASSES


@pytest.mark.parametrize("name", ["two layers", "three layers"])
def test_geweke(name):
    assert holm(geweke(CASES[name], joint_step, 30, 15, 600, seed=3)).min() > PASSES


# ---- Brute force: every position and every z of a model whose dictionaries and precisions are held, w integrated out.
GAMMA_E, GAMMA_W = 4.0, 1.0
SPEC, PAIR = refinement(fixed=GAMMA_E), (layer(2, (2, 2), (1, 2)), top(2, (1, 2)))
TINY = {
    # 2x3 maps under 1x2 blocks, whole and ragged: 16 ways; then four elements
    "two layers": (ModelSpec(PAIR, (3, 4)), SPEC, False), "two layers, masked": (ModelSpec(PAIR, (3, 4)), SPEC, True),
    # 1x3 maps under 1x2 blocks that may be empty: 36 ways; then two elements
    "empty blocks": (ModelSpec(PAIR, (2, 4)), refinement(fixed=GAMMA_E, empty_blocks=True), False),
    # signals: six positions under blocks of two, 64 ways; two under one block of two, 4 ways; two elements
    "three layers": (
        ModelSpec((layer(2, (1, 3), (1, 2)), layer(2, (1, 2), (1, 2)), top(2, (1, 1))), (1, 8)), SPEC, False,
    ),
}


def columns(positions, z, dictionaries, shapes, seen):
    """Image of a unit of every active coefficient of one image: (coefficient, pixel), 0 where missing."""
    found = []
    for k, i, j in np.argwhere(z[0] != EMPTY):
        alone, w = np.full_like(z, EMPTY), np.zeros(z.shape)
        alone[0, k, i, j], w[0, k, i, j] = 0, 1.0
        local = JointLocal(positions, alone, w, np.full(1, GAMMA_E))
        found.append(np.where(seen, layer_values(local, dictionaries, shapes)[0], 0.0).ravel())
    return np.array(found).reshape(len(found), seen.size)


def weights_law(a, image):
    """Mean and precision of the active weights given all positions."""
    precision = GAMMA_E * a @ a.T + GAMMA_W * np.eye(len(a))
    return np.linalg.solve(precision, GAMMA_E * a @ image), precision


def enumerated(name):
    """State and data of one image, every outcome as (positions of each layer, z), and their posterior."""
    model, spec, masked = TINY[name]
    shapes, generator = model.shapes(), np.random.default_rng(6)
    dictionaries = tuple(generator.standard_normal(s.dictionary) for s in shapes)
    image = generator.standard_normal((1, 1, *model.image_size))
    mask = generator.random(image.shape) < 0.7 if masked else None
    seen = mask if masked else np.ones(image.shape, bool)
    flat = np.where(seen, image, 0.0).ravel()
    spaces = [every_z(s, spec.empty_blocks or s is shapes[-1]) for s in shapes]
    space, log_weight = [], []
    for parts in itertools.product(*spaces):
        a = columns(parts[:-1], parts[-1], dictionaries, shapes, seen)
        mean, precision = weights_law(a, flat)
        evidence = 0.5 * (len(a) * np.log(GAMMA_W) - np.linalg.slogdet(precision)[1] + mean @ precision @ mean)
        for z, each, shape in zip(parts, model.layers, shapes, strict=True):
            evidence += log_positions(z, each, shape, spec.empty_blocks or shape is shapes[-1])
        space.append(parts)
        log_weight.append(evidence)
    probability = np.exp(np.array(log_weight) - max(log_weight))
    local = JointLocal(space[0][:-1], space[0][-1], np.zeros(space[0][-1].shape), np.full(1, GAMMA_E))
    gamma_d = tuple(np.ones((1, 1)) for _ in shapes)
    state = JointState(local, JointShared(dictionaries, gamma_d, np.full(1, GAMMA_W)))
    return state, LayerData(image, mask), model, spec, space, probability / probability.sum()


def named(parts):
    """One outcome as bytes."""
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def p_value_of(local, space, probability):
    """Chi-square of drawn outcomes against their probabilities."""
    place = {named(parts): t for t, parts in enumerate(space)}
    drawn = [named([z[n : n + 1] for z in (*local.positions, local.z)]) for n in range(len(local.z))]
    found = np.bincount([place[one] for one in drawn], minlength=len(space))
    return p_value_of_counts(found, len(drawn) * probability)


def p_value_of_weights(local, state, data, model):
    """Whether the weights follow their Gaussian given all positions: Mahalanobis distances against chi-square."""
    seen = np.ones(data.images[:1].shape, bool) if data.mask is None else data.mask[:1]
    image, uniform = np.where(seen, data.images[:1], 0.0).ravel(), []
    for n in range(len(local.z)):
        cut = np.s_[n : n + 1]
        positions = tuple(z[cut] for z in local.positions)
        a = columns(positions, local.z[cut], state.shared.dictionaries, model.shapes(), seen)
        if len(a):
            mean, precision = weights_law(a, image)
            off = local.w[n][local.z[n] != EMPTY] - mean
            uniform.append(stats.chi2(len(a)).cdf(off @ precision @ off))
    return stats.kstest(uniform, "uniform").pvalue


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if "three" in n else n for n in TINY])
def test_brute_force(name):
    """4000 independent chains of one image, from its first outcome; some passes on, the enumerated posterior.

    How many: with three layers so small that expected norms are poor, 60 were seen to be too few, and 300 enough.
    """
    state, data, model, spec, space, probability = enumerated(name)
    chain, images = of_images(state, data, np.zeros(4000, int))
    chain = with_local(chain, gamma_e=state.local.gamma_e)
    for number in range(300 if "three" in name else 60):
        chain = chain._replace(local=local_pass(chain, images, model, spec, Key(9, REFINE, 0, number))[0])
    assert p_value_of(chain.local, space, probability) > PASSES
    assert p_value_of(chain.local, space, np.roll(probability, 1)) < FAILS
    some, _ = of_images(chain, images, slice(500))
    assert p_value_of_weights(some.local, state, images, model) > PASSES


# ---- One step from its own conditional: the distribution that a step must leave as it is, here known exactly.
#: three layers, pixels missing
SOFT = "three layers, empty blocks, masked"
#: (gamma_e, image, atom, row, col): places where no outcome is certain, and norms are far from the expected ones, or
#: differ much from position to position
TOP = ((0.3, 2, 1, 0, 0), (0.3, 1, 0, 1, 0))
UPPER = ((1.0, 2, 2, 0, 0),)
UPPER_NORMS = ((1.0, 0, 1, 0, 0),)
BOTTOM = ((3.0, 0, 1, 0, 0), (3.0, 2, 0, 0, 1))


def soft(gamma_e, n, *place):
    """State and data of one image, the expected overlaps of its atoms' images, and a place in it."""
    state, data, model, spec = draw_joint(SOFT)
    one, alone = of_images(state, data, slice(n, n + 1))
    means = mean_atom_images(state.shared.dictionaries, [shape.block for shape in model.shapes()])
    overlaps = tuple(mean.overlaps for mean in means[1:])
    return with_local(one, gamma_e=np.full(1, gamma_e)), alone, model, spec, overlaps, (0, *place)


def excess(found, log_probability):
    """Chi-square and its degrees of freedom of outcomes found against their probabilities, the rare ones lumped."""
    expected = len(found) * np.exp(log_probability)
    counts = np.bincount(np.asarray(found) % len(expected), minlength=len(expected))  # -1, empty, is the last
    rare = expected < 5
    counts, expected = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    counts, expected = counts[expected > 1], expected[expected > 1]
    return ((counts - expected) ** 2 / expected).sum(), len(expected) - 1


def after_switches(pieces, repeats=250):
    """P-values that top coefficients are active as often as they were, and that their weights are their Gaussians'.

    One that stays on keeps its weight, so that a switch which depends on the weight wrongly would show here.
    """
    chi_square, white = np.zeros(2), []
    for t, place in enumerate(TOP):
        state, data, model, _, overlaps, where = soft(*place)
        choice, found = joint_conditionals.coefficient_given_rest(state, data, model, where), []
        for n in range(repeats):
            stream = Stream(12, REFINE, t, 0, n)
            start = with_block(state, where, *choice.sample(stream))
            local = pieces.switch(start, data, model, float(overlaps[-1][where[1], 0, 0]), where, stream).local
            found.append(local.z[where])
            if local.z[where] != EMPTY:
                white.append((local.w[where] - choice.mean[0]) * np.sqrt(choice.precision[0]))
        chi_square += excess(found, choice.log_probability)
    return stats.chi2.sf(*chi_square), stats.kstest(white, "norm").pvalue


def after_weights(pieces, repeats=400):
    """P-values of mean and covariance of all weights of an image that are on."""
    state, data, model, _, overlaps, _ = soft(*TOP[0])
    state = with_local(state, z=np.zeros_like(state.local.z), w=np.ones_like(state.local.w))
    choice = joint_conditionals.weights_given_rest(state, data, model)
    generator, draws = np.random.default_rng(16), []
    for n in range(repeats):
        start = with_weights(state, choice.sample(generator))
        after = pieces.weights(start, data, model, overlaps[-1][:, 0, 0], Stream(17, REFINE, 0, 0, n))
        draws.append(after.local.w.ravel())
    return p_values_of_draws(np.array(draws), choice)


def after_positions(step, layer, places, repeats):
    """P-value that blocks of a layer are at every position as often as they were."""
    chi_square = np.zeros(2)
    for t, place in enumerate(places):
        state, data, model, spec, overlaps, where = soft(*place)
        choice, found = joint_conditionals.position_given_rest(state, data, model, spec, layer, where), []
        for n in range(repeats):
            stream = Stream(13, REFINE, t, layer, n)
            start = joint_conditionals.with_position(state, layer, where, choice.sample(stream))
            after = step(start, data, model, spec, layer, where, overlaps[layer], stream)
            found.append(after.local.positions[layer][where])
        chi_square += excess(found, choice.log_probability)
    return stats.chi2.sf(*chi_square)


def after_dictionary(step, repeats=250):
    """P-values of mean and covariance of a top dictionary."""
    state, data, model, _ = draw_joint("two layers")
    choice, generator = joint_conditionals.dictionary_given_rest(state, data, model, 1), np.random.default_rng(14)
    draws = []
    for n in range(repeats):
        start = with_dictionary(state, 1, choice.sample(generator).reshape(model.shapes()[1].dictionary))
        draws.append(step(start, data, model, 1, (15, REFINE, 0, n)).ravel())
    return p_values_of_draws(np.array(draws), choice)


#: what a shortcut does not keep: activity, weights one by one and all at once, upper positions, bottom positions, a
#: dictionary's covariance
KEPT = {
    "activity": lambda pieces: after_switches(pieces)[0],
    "weights of those on": lambda pieces: after_switches(pieces)[1],
    "mean of all weights": lambda pieces: after_weights(pieces)[0],
    "covariance of all weights": lambda pieces: after_weights(pieces)[1],
    "upper positions": lambda pieces: after_positions(pieces.upper, 1, UPPER, 1500),
    "upper positions, norms": lambda pieces: after_positions(pieces.upper, 1, UPPER_NORMS, 250),
    "bottom positions": lambda pieces: after_positions(pieces.bottom, 0, BOTTOM, 500),
    "covariance": lambda pieces: after_dictionary(pieces.dictionary)[1],
}
NOT_KEPT = [
    ("switch not accepted", "activity"),
    ("weights not accepted", "mean of all weights"),
    ("weights not accepted", "covariance of all weights"),
    ("position not accepted", "upper positions"),
    ("position without norm", "upper positions, norms"),
    ("position without norm", "bottom positions"),
    ("position counted twice", "bottom positions"),
    ("solver cut off", "covariance"),
]


@pytest.mark.parametrize("what", KEPT)
def test_a_correct_step_keeps_its_conditional(what):
    assert KEPT[what](CORRECT) > PASSES


@pytest.mark.parametrize(("name", "what"), NOT_KEPT)
def test_a_shortcut_does_not_keep_its_conditional(name, what):
    assert KEPT[what](SHORTCUTS[name]) < FAILS


def test_every_shortcut_is_rejected_by_a_rung():
    assert set(SHORTCUTS) == {name for name, _ in NOT_KEPT}
