"""Peers and this package on the same digits: learning 32 atoms of 8 x 8, and coding with given atoms.

Peers live in the extra ``peers`` of this package; those that are not installed are named. Each is tuned, which is not
timed, and runs once on the digits that ours ran on, or on the first of them. All run on one thread and are timed in
processor time; what is done only to watch them is not counted. A coefficient counts as active if its absolute value,
for an atom of unit norm, is above `THRESHOLD`: a thousandth of the way from black to white.
"""

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.optimize import root_scalar

from gdd import infer, project
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.model.state import LayerData
from gdd.projection import render_projected
from gdd.sampler.pretrain import Pretrained, fit_layer, initial_state, pretrain
from gdd_book.dictionaries import placed_atoms
from gdd_book.progress import Run

THRESHOLD = 1e-3
#: name of a package -> what is installed to have it
PACKAGES = {"sporco": "sporco", "spams": "spams-bin", "sklearn": "scikit-learn"}
#: our chains: sweeps of learning (burn-in, collected); of coding, the third is what peers are held to
LEARNING, CODING = (60, 20), ((0, 1), (10, 10), (60, 20), (500, 200))
HELD_TO = 2
#: iterations of sporco; digits on which its slow coding is compared
ITERATIONS, SLOW = 150, slice(10)
#: sporco's lambda and rho in learning: of six pairs tried on twenty digits of MNIST those that came closest to ours
LEARNING_WEIGHT, LEARNING_PENALTY = 0.2, 1.0
#: sporco's rho in coding, and bounds of every coding method's lambda
CODING_PENALTY, RANGE = 5.0, (0.03, 3.0)


class Curve(NamedTuple):
    """Where a method is, and when: after every iteration, or once if it cannot be watched."""

    seconds: np.ndarray  # per image
    error: np.ndarray  # root mean square over all pixels
    active: np.ndarray  # coefficients per image

    def first(self, error: float, active: float) -> int | None:
        """Return the first iteration that is at least as good in both; None if none is."""
        good = np.flatnonzero((self.error <= error) & (self.active <= active))
        return int(good[0]) if len(good) else None


class Entry(NamedTuple):
    """One method on one task. Its curve is empty where its package is missing."""

    task: str
    method: str
    curve: Curve
    at: int | None  # iteration at which it is compared; None: it never came to where it could be
    note: str


def installed(package: str) -> bool:
    """Whether a package is here."""
    return find_spec(package) is not None


def missing(task: str, method: str, package: str) -> Entry:
    """Return what is said of a peer that is not here."""
    return Entry(task, method, Curve(*np.empty((3, 0))), None, f"not installed: pip install {PACKAGES[package]}")


# ---- the two tasks
def contest(images: xr.DataArray, model: ModelSpec, seed: int, run: Run) -> xr.Dataset:
    """Run both tasks; the table that `as_dataset` makes of all entries."""
    pixels = images.values.astype(np.float32)
    fit_layer(LayerData(pixels[:2]), model.layers[0], model.shapes()[0], ChainSpec(0, 1, seed))  # compiles
    with run.bar(6, "peers") as bar:
        entries = learning(pixels, model, seed, bar)
        entries += coding(images, pretrain(pixels, model, ChainSpec(*LEARNING, seed)), seed, bar)
    return as_dataset(entries)


def learning(pixels: np.ndarray, model: ModelSpec, seed: int, bar) -> list[Entry]:
    """Our chain of layer 1, and sporco from the same first atoms until it is as good in error and in sparsity."""
    layer, chain, watch = (model.layers[0], model.shapes()[0]), ChainSpec(*LEARNING, seed), _Laps()
    traces = fit_layer(LayerData(pixels), *layer, chain, progress=watch).traces.isel(chain=0)
    ours = Curve(np.array(watch.laps) / len(pixels), traces.residual.values, traces.active.values)
    found = [Entry("learning", "gdd", ours, len(ours.error) - 1, f"{chain.sweeps} sweeps")]
    bar.step()
    if not installed("sporco"):
        return [*found, missing("learning", "sporco", "sporco")]
    atoms = initial_state(LayerData(pixels), *layer, chain, 0).shared.dictionary[:, 0]
    curve = learn_sporco(pixels[:, 0], atoms, LEARNING_WEIGHT, LEARNING_PENALTY, ITERATIONS)
    bar.step()
    note = f"lambda {LEARNING_WEIGHT:g}, rho {LEARNING_PENALTY:g}, at most {ITERATIONS} iterations"
    return [*found, Entry("learning", "sporco", curve, curve.first(ours.error[-1], ours.active[-1]), note)]


def coding(images: xr.DataArray, fitted: Pretrained, seed: int, bar) -> list[Entry]:
    """Our deconvolution, and the peers with the same projected atoms."""
    atoms, pixels = project(fitted), images.astype(np.float32)
    ours, goals = our_coding(fitted, atoms, pixels, seed)
    found = [Entry("coding", "gdd", ours, HELD_TO, "{} + {} sweeps".format(*CODING[HELD_TO]))]
    bar.step()
    unit = atoms.values[:, 0] / np.sqrt((atoms.values[:, 0] ** 2).sum(axis=(1, 2), keepdims=True))
    columns = np.asfortranarray(placed_atoms(atoms.values, fitted.model.stride, images.shape[2:]).T, np.float32)
    flat = np.asfortranarray(pixels.values.reshape(len(pixels), -1).T)
    peers = {
        "spams": ("spams-bin lasso", slice(None), lambda part, w: code_spams(flat[:, part], columns, w)),
        "sklearn": ("scikit-learn lasso", slice(None), lambda part, w: code_sklearn(flat[:, part], columns, w)),
        "sporco": ("sporco", SLOW, lambda part, w: code_sporco(
            pixels.values[part, 0], unit, w, CODING_PENALTY, ITERATIONS)),
    }
    for package, (name, part, code) in peers.items():
        if package == "sporco" and installed("spams"):
            greedy = code_spams_greedy(flat, columns, ours.active[HELD_TO])
            found.append(Entry("coding", "spams-bin greedy (OMP)", greedy, 0, "equal active"))
        if not installed(package):
            found.append(missing("coding", name, package))
            continue
        for of, goal in goals(part).items():  # tuned to ours in active coefficients, and in error
            weight = tuned(lambda w, part=part, code=code: code(part, w), goal, of, *RANGE)
            curve, digits = code(part, weight), f", {part.stop} digits" if part.stop else ""
            note = f"equal {of}, lambda {weight:.3g}{digits}"
            found.append(Entry("coding", name, curve, len(curve.error) - 1, note))
        bar.step()
    return found


def our_coding(
    fitted: Pretrained, atoms: xr.DataArray, images: xr.DataArray, seed: int
) -> tuple[Curve, Callable[[slice], dict[str, float]]]:
    """Curve of the best samples of chains of several lengths; ``active`` and ``error`` of one on some images."""
    infer(fitted, atoms, images[:2], burn_in=0, collect=1, seed=seed)  # compiles
    rows, squares, active = [], [], []
    for burn_in, collect in CODING:
        begun = time.process_time()
        codes = infer(fitted, atoms, images, burn_in=burn_in, collect=collect, seed=seed).ml_sample.values
        spent = time.process_time() - begun
        drawn = render_projected(atoms.values, codes, fitted.model.stride, images.shape[2:])
        squares.append(((images.values - drawn) ** 2).mean(axis=(1, 2, 3)))
        active.append((codes != 0).sum(axis=(1, 2, 3)))
        rows.append((spent / len(images), float(np.sqrt(squares[-1].mean())), float(active[-1].mean())))
    goals = lambda part: {  # noqa: E731
        "active": float(active[HELD_TO][part].mean()), "error": float(np.sqrt(squares[HELD_TO][part].mean()))
    }
    return Curve(*np.array(rows).T), goals


def as_dataset(entries: list[Entry]) -> xr.Dataset:
    """Entries along ``entry``: where each is compared, its time over ours on that task, and its curve."""
    out = xr.Dataset({
        f"peer_{name}": ("entry", [getattr(one, name) for one in entries]) for name in ("task", "method", "note")
    })
    longest = max(len(one.curve.error) for one in entries)
    for name in Curve._fields:
        values = [getattr(one.curve, name) for one in entries]
        curves = np.stack([np.pad(line, (0, longest - len(line)), constant_values=np.nan) for line in values])
        compared = [np.nan if one.at is None else line[one.at] for one, line in zip(entries, curves, strict=True)]
        out = out.assign({f"curve_{name}": (("entry", "iteration"), curves), f"peer_{name}": ("entry", compared)})
    ours = {one.task: one.curve.seconds[one.at] for one in entries if one.method == "gdd"}
    return out.assign(peer_ratio=out.peer_seconds / np.array([ours[one.task] for one in entries]))


def tuned(run: Callable[[float], Curve], goal: float, of: str, low: float, high: float) -> float:
    """Weight of the penalty at which a method ends with this ``error``, or ``active``: secant steps of its log."""

    def excess(log_weight: float) -> float:
        return np.log(max(float(getattr(run(np.exp(np.clip(log_weight, *ends))), of)[-1]), 1e-12) / goal)

    ends = np.log([low, high])
    with warnings.catch_warnings(action="ignore"):  # where it comes to an end of the range
        found = root_scalar(excess, x0=ends.mean(), x1=ends.mean() + 0.5, method="secant", xtol=1e-2, maxiter=4)
    return float(np.exp(np.clip(found.root, *ends)))


class _Laps:
    """Stands in for a progress bar: processor time after every sweep."""

    def __init__(self):
        self.laps, self._begun = [], time.process_time()

    def begin(self, *_, **__) -> None:
        """A stage begins, which is nothing to this one."""

    def step(self, *_, **__) -> None:
        """One sweep is done."""
        self.laps.append(time.process_time() - self._begun)


# ---- each package behind one function
def learn_sporco(images: np.ndarray, atoms: np.ndarray, weight: float, penalty: float, iterations: int) -> Curve:
    """Convolutional dictionary learning, ADMM for the codes and the dictionary; images wrap around at their borders.

    ``images`` (image, row, col), ``atoms`` (atom, atom_row, atom_col) to start from; ``weight``, ``penalty``: lambda,
    rho
    """
    from sporco.dictlrn.cbpdndl import ConvBPDNDictLearn

    watch = _Watch(images, lambda solver, codes: solver.reconstruct(solver.dstep.var_y(), codes),
                   lambda solver: solver.xstep.var_y())
    options = ConvBPDNDictLearn.Options({
        "Verbose": False, "MaxMainIter": iterations, "Callback": watch, "CCMOD": {"DataType": np.float32},
        "CBPDN": {"DataType": np.float32, "rho": penalty},
    }, xmethod="admm", dmethod="cns")
    solver = ConvBPDNDictLearn(_last(atoms), watch.pictures, weight, options, xmethod="admm", dmethod="cns")
    return watch.curve(solver.solve)


def code_sporco(images: np.ndarray, atoms: np.ndarray, weight: float, penalty: float, iterations: int) -> Curve:
    """Convolutional coding with given atoms of unit norm, by ADMM; arguments as for `learn_sporco`."""
    from sporco.admm.cbpdn import ConvBPDN

    watch = _Watch(images, lambda solver, codes: solver.reconstruct(codes), lambda solver: solver.var_y())
    options = ConvBPDN.Options({
        "Verbose": False, "MaxMainIter": iterations, "Callback": watch, "DataType": np.float32, "rho": penalty,
        "RelStopTol": 0.0, "AutoRho": {"Enabled": False},
    })
    return watch.curve(ConvBPDN(_last(atoms), watch.pictures, weight, options, dimK=1).solve)


def _last(images: np.ndarray) -> np.ndarray:
    """Images as sporco wants them, (row, col, image)."""
    return np.ascontiguousarray(images.transpose(1, 2, 0), np.float32)


class _Watch:
    """Stopwatch of sporco on one thread, which stands still while an iteration's outcome is looked at."""

    def __init__(self, images: np.ndarray, reconstruct: Callable, codes_of: Callable):
        import sporco.fft

        sporco.fft.pyfftw_threads = 1
        self.pictures, self._reconstruct, self._codes_of = _last(images), reconstruct, codes_of
        self._rows, self._spent, self._begun = [], 0.0, time.process_time()

    def __call__(self, solver) -> bool:
        """Note one iteration; False, as the solver is not to stop."""
        self._spent += time.process_time() - self._begun
        codes, n = self._codes_of(solver), self.pictures.shape[-1]
        left = self._reconstruct(solver, codes).reshape(self.pictures.shape) - self.pictures
        active = float((abs(codes) > THRESHOLD).sum()) / n
        self._rows.append((self._spent / n, float(np.sqrt((left**2).mean())), active))
        self._begun = time.process_time()
        return False

    def curve(self, solve: Callable[[], object]) -> Curve:
        """All iterations."""
        solve()
        return Curve(*np.array(self._rows).T)


def code_spams(pixels: np.ndarray, columns: np.ndarray, weight: float) -> Curve:
    """Exact lasso by homotopy; pixels (pixel, image), columns (pixel, coefficient) of unit norm."""
    import spams

    return _once(lambda: spams.lasso(pixels, D=columns, lambda1=weight, mode=2, numThreads=1), pixels, columns)


def code_spams_greedy(pixels: np.ndarray, columns: np.ndarray, count: float) -> Curve:
    """Orthogonal matching pursuit with so many coefficients for every image; without a tolerance spams reads any."""
    import spams

    return _once(lambda: spams.omp(pixels, D=columns, L=round(count), eps=0.0, numThreads=1), pixels, columns)


def code_sklearn(pixels: np.ndarray, columns: np.ndarray, weight: float) -> Curve:
    """Lasso by coordinate descent, until it has converged or for a thousand rounds."""
    from sklearn.decomposition import sparse_encode

    settings = {"algorithm": "lasso_cd", "alpha": weight, "max_iter": 1000, "n_jobs": 1}
    with warnings.catch_warnings(action="ignore"):
        return _once(lambda: sparse_encode(pixels.T, columns.T, **settings).T, pixels, columns)


def _once(solve: Callable[[], object], pixels: np.ndarray, columns: np.ndarray) -> Curve:
    begun = time.process_time()
    codes = solve()
    spent = time.process_time() - begun
    codes = codes.toarray() if hasattr(codes, "toarray") else codes
    error, n = float(np.sqrt(((pixels - columns @ codes) ** 2).mean())), pixels.shape[1]
    return Curve(*(np.array([v]) for v in (spent / n, error, float((abs(codes) > THRESHOLD).sum()) / n)))
