"""Is the sampler right, and would the tests notice if it were not?

Correct samplers and the paper's misprints, on small layers, go through the exact start, Geweke's alternating chain and
simulation-based calibration; so do the joint model's sampler and the shortcuts that it must not take.
"""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, IMAGE, PLANE
from gdd.base.compiling import on_threads
from gdd.model.spec import LayerSpec, ModelSpec, Precision, RefinementSpec, Size, layer_shape
from gdd_book.checks import calibration as checks
from gdd_book.checks.calibration_joint import JointCase, joint_plain_step, joint_step
from gdd_book.checks.printed import MENDED, MISPRINTS
from gdd_book.checks.shortcuts import SHORTCUTS
from gdd_book.experiments.common import Outcome, experiment
from gdd_book.progress import Run

DRAWS, BINS = 31, 8  # ranks 0 to 31, four to a bin


def proper(*axes: str) -> Precision:
    """Gamma(4, 3): a prior that can be drawn from."""
    return Precision(axes, 4.0, 3.0)


def case(spec: LayerSpec, size: Size, planes: int = 1, hidden: float = 0.0) -> checks.Case:
    """Two images of a small layer."""
    return checks.Case(spec, layer_shape(spec, size, planes), 2, hidden)


#: two atoms of 3x3 that overlap their neighbours under ragged 2x2 blocks
POOLED = LayerSpec(2, (3, 3), (2, 2), gamma_e=proper(), gamma_d=proper(ATOM, PLANE), gamma_w=proper())
SMALL = case(POOLED, (5, 6))
BY_IMAGE = replace(POOLED, gamma_e=proper(IMAGE))
#: of the joint model: 4x5 maps under ragged 2x2 blocks; the top on them, or with a layer of 1x2 blocks between
BOTTOM = replace(POOLED, atom_size=(2, 2))
MIDDLE = replace(BOTTOM, atom_size=(1, 2), pool=(1, 2))
TWO = ModelSpec((BOTTOM, replace(BOTTOM, pool=None)), (5, 6))
THREE = ModelSpec((BOTTOM, MIDDLE, replace(BOTTOM, atom_size=(2, 1), pool=None)), (5, 6))
NOISE = RefinementSpec(proper(IMAGE))
EMPTY_BLOCKS = RefinementSpec(proper(IMAGE), empty_blocks=True)
CORRECT: dict[str, tuple[checks.Case | JointCase, checks.Step]] = {
    "pooled": (SMALL, checks.compiled_step),
    "plain": (SMALL, checks.plain_step()),
    "P2 mended": (SMALL, checks.plain_step(MENDED["P2"])),
    "noise by image": (case(BY_IMAGE, (5, 6)), checks.compiled_step),
    "two planes": (case(BY_IMAGE, (5, 6), 2), checks.compiled_step),
    "top layer": (case(replace(BY_IMAGE, atoms=3, pool=None), (4, 5), 2), checks.compiled_step),
    "pixels missing": (case(BY_IMAGE, (5, 6), 1, 0.3), checks.compiled_step),
    "joint, 2 layers": (JointCase(TWO, NOISE, 2), joint_step),
    "joint, 3 layers": (JointCase(THREE, NOISE, 2), joint_step),
    "joint, empty blocks": (JointCase(TWO, EMPTY_BLOCKS, 2, 0.3), joint_step),
    "joint, plain shared part": (JointCase(THREE, NOISE, 2), joint_plain_step()),
}
#: what the shortcuts of the joint model are seen in: norms matter where pixels are missing, the more the less noise.
#: The others are too mild for so small a model; the test of single steps rejects them (tests/test_joint_sampler.py)
HARD = JointCase(THREE, EMPTY_BLOCKS, 2, 0.3)
PRECISE = JointCase(TWO, RefinementSpec(Precision((IMAGE,), 36.0, 3.0), empty_blocks=True), 2, 0.3)
SEEN = {"switch not accepted": HARD, "position without norm": PRECISE}
WRONG = {name: (SMALL, checks.plain_step(pieces)) for name, pieces in MISPRINTS.items()} | {
    name: (small, joint_plain_step(SHORTCUTS[name])) for name, small in SEEN.items()
}
SLOW = ("P2 mended", "P2", "P3", *SEEN)  # through a plain image pass, at a tenth of the speed
RANKED = ("pooled", "top layer", "P4", "P5", "P6, rate only")


@experiment(
    "calibration", seed=0,
    demo={"replicates": 120, "sweeps": 2, "chains": 20, "length": 10, "wrong": 40, "ranked": 40, "ranked_wrong": 20,
          "burn_in": 30, "thin": 1},
    paper={"replicates": 800, "sweeps": 4, "chains": 40, "length": 40, "wrong": 200, "ranked": 256,
           "ranked_wrong": 64, "burn_in": 60, "thin": 3},
)
def calibration(p: dict, run: Run) -> Outcome:
    """Exact tests of every sampler, and of the misprints that must fail them."""
    samplers, exact, alternating, rank = CORRECT | WRONG, {}, {}, {}
    with on_threads(1):  # images are few and small: threads would only wait for each other
        for name, (small, step) in samplers.items():
            number = p["replicates"] if name in CORRECT and name not in SLOW else p["wrong"]
            with run.bar(number + p["chains"], name) as bar:
                each = partial(counted, bar)
                exact[name] = checks.exact_start(small, step, number, p["sweeps"], p["seed"], each)
                length = p["length"] if name not in SLOW else max(2, p["length"] // 4)
                alternating[name] = checks.geweke(small, step, p["chains"], length, 20 * p["chains"], p["seed"], each)
        for name in RANKED:
            number = p["ranked" if name in CORRECT else "ranked_wrong"]
            with run.bar(number, f"{name}, ranks") as bar:
                each, lengths = partial(counted, bar), (p["burn_in"], DRAWS, p["thin"])
                rank[name] = checks.ranks(*samplers[name], number, *lengths, p["seed"], each)
    specs = {name: small.spec for name, (small, _) in samplers.items()}
    # the data are drawn from the models themselves, so a digest of these stands in for a data set's checksum
    models = hashlib.sha256(repr([(name, small) for name, (small, _) in samplers.items()]).encode()).hexdigest()
    return Outcome(gathered(exact, alternating, rank), specs, "calibration", models, p["seed"])


def counted(bar, replicates):
    """Replicates, each of which is counted on the bar when it is done."""
    for r in replicates:
        yield r
        bar.step()


def gathered(exact: dict, alternating: dict, rank: dict) -> xr.Dataset:
    """All results as one dataset.

    ``exact_start``, ``geweke``: p-values (sampler, moment, statistic); ``rank`` (ranked, replicate, statistic), -1
    where a sampler had fewer replicates; ``uniformity`` (ranked, statistic)
    """
    tests = ("sampler", "moment", "statistic")
    ranked = np.full((len(rank), max(map(len, rank.values())), len(checks.STATISTICS)), -1, np.int16)
    for filled, found in zip(ranked, rank.values(), strict=True):
        filled[: len(found)] = found
    return xr.Dataset({
        "exact_start": (tests, [*exact.values()]), "geweke": (tests, [*alternating.values()]),
        "rank": (("ranked", "replicate", "statistic"), ranked),
        "uniformity": (("ranked", "statistic"), [checks.uniformity(one, DRAWS, BINS) for one in rank.values()]),
        "correct": ("sampler", [name in CORRECT for name in exact]),
    }, {
        "sampler": list(exact), "moment": ["mean", "mean square"], "statistic": list(checks.STATISTICS),
        "ranked": list(rank),
    }, {"ranks": DRAWS + 1})
