"""Depth by noise precision: what an atom is made of, digits not learned from, and the studies at their smallest."""

import numpy as np

from gdd_book import experiments, training
from gdd_book.experiments.studies import control, depth
from gdd_book.progress import Run

BARS = control.planted_dictionaries(1, np.random.default_rng(0))[0][:, 0]


def placed(*parts):
    atom = np.zeros((1, 25, 25))
    for bar, row, col, weight in parts:
        atom[0, row : row + 8, col : col + 8] += weight * BARS[bar]
    return atom


def test_share_of_a_copy_of_two_parts_and_of_noise():
    one = depth.explained_by_parts(placed((3, 2, 5, -2.0)), BARS)[0]
    np.testing.assert_allclose(one, 1)
    two = depth.explained_by_parts(placed((3, 0, 0, 2.0), (7, 12, 12, 1.0)), BARS)[0]
    np.testing.assert_allclose(two, [0.8, 1, 1])
    noise = np.random.default_rng(0).standard_normal((20, 25, 25))
    assert depth.explained_by_parts(noise, BARS)[:, 0].mean() < 0.04
    assert (depth.explained_by_parts(np.zeros((1, 25, 25)), BARS) <= 1).all()


def test_scan_holds_every_precision_in_order_and_run_once_more_is_read(tmp_path, monkeypatch):
    once = lambda: experiments.run("mnist-depth", changes, within=Run(tmp_path)).dataset  # noqa: E731
    changes = {"n_train": 60, "n_others": 60, "burn_in": 1, "collect": 1, "refine_burn_in": 1, "refine_collect": 1}
    changes |= {"test_burn_in": 1, "test_collect": 1, "seeds": (0,), "noises": (44.0, 2.0)}
    scan = once()
    assert scan.noise.values.tolist() == [2, 44] and (scan.residual.sel(noise=2) > scan.residual.sel(noise=44)).all()
    assert ((scan.explained > 0) & (scan.explained <= 1)).all()
    assert (scan.explained.diff("parts") >= 0).all()
    assert (scan.hidden_error > 0).all() and (scan.plain_error > 0).all()
    assert ((scan.told_apart >= 0) & (scan.told_apart <= 100)).all()
    assert scan.reading.values.tolist() == ["normalised detectors", "sample", "mean"]
    assert ((scan.winning_share > 1 / 9) & (scan.winning_share < 1)).all()
    monkeypatch.setattr(depth, "describe_depth", None)
    assert once().equals(scan)


def test_noise_precision_goes_to_its_end_in_equal_ratios(monkeypatch):
    """Each part of the refinement goes on from the one before, with random numbers of its own."""
    noises, seen, real = [], [], training.refine

    def refine(images, model, chain, refinement, start, **more):
        noises.append(refinement.noise.fixed)
        seen.append((chain.burn_in, chain.collect, chain.seed, type(start).__name__))
        return real(images, model, chain, refinement, start, **more)

    monkeypatch.setattr(training, "refine", refine)
    p = {"data": "digits", "n_train": 20, "seed": 0, "noise_precision": 100.0, "weight_precision": 0.1, "burn_in": 1,
         "collect": 1, "refine_burn_in": 4, "refine_collect": 2, "refine_noise": 2.0, "first_noise": 0.5}
    run = Run()
    training.refined_model(p, training.pretrained_model(p, run), run, training.setup_of(p))
    np.testing.assert_allclose(noises, [0.5, 1, 2])
    assert seen == [(1, 1, 1000, "Pretrained"), (1, 1, 2000, "Refined"), (0, 2, 0, "Refined")]
    monkeypatch.setattr(training, "pretrain", lambda images, model, chain, **more: chain.start)
    starts = [training.pretrained_model(p | {"random_start": one}, run) for one in (False, True)]
    assert starts == ["patches", "random"]
