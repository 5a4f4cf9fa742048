"""Other packages' sparse coding and dictionary learning, each behind one function that tells how far it came and when.

They live in the extra ``peers`` of this package. All run on one thread and are timed in processor time; what is done
only to watch them is not counted. A coefficient counts as active if its absolute value, for an atom of unit norm, is
above `THRESHOLD`: a thousandth of the way from black to white.
*Checked:* tests/test_peers.py.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

THRESHOLD = 1e-3
#: name of a package -> what is installed to have it
PACKAGES = {"sporco": "sporco", "spams": "spams-bin", "sklearn": "scikit-learn"}


class Curve(NamedTuple):
    """How far a method came, and when: after every iteration, or once if it cannot be watched."""

    seconds: np.ndarray  # per image
    error: np.ndarray  # root mean square over all pixels
    active: np.ndarray  # coefficients per image

    def first(self, error: float, active: float) -> int | None:
        """Return the first iteration that is at least as good in both; None if none is."""
        good = np.flatnonzero((self.error <= error) & (self.active <= active))
        return int(good[0]) if len(good) else None


def installed(package: str) -> bool:
    """Whether a package is here."""
    return find_spec(package) is not None


def learn_sporco(images: np.ndarray, atoms: np.ndarray, weight: float, penalty: float, iterations: int) -> Curve:
    """Convolutional dictionary learning, ADMM for the codes and the dictionary.

    Images wrap around at their borders there, and every pixel is a position.

    images : (image, row, col), atoms : (atom, atom_row, atom_col) to start from
    weight, penalty : lambda and rho of that package
    """
    from sporco.dictlrn.cbpdndl import ConvBPDNDictLearn

    pictures, watch = _one_thread(images), None

    def look(solver) -> bool:
        codes = solver.xstep.var_y()
        return watch.note(lambda: solver.reconstruct(solver.dstep.var_y(), codes), codes)

    options = ConvBPDNDictLearn.Options({
        "Verbose": False, "MaxMainIter": iterations, "Callback": look, "CCMOD": {"DataType": np.float32},
        "CBPDN": {"DataType": np.float32, "rho": penalty},
    }, xmethod="admm", dmethod="cns")  # fmt: skip
    start = np.ascontiguousarray(atoms.transpose(1, 2, 0), np.float32)
    watch = _Watch(pictures)
    ConvBPDNDictLearn(start, pictures, weight, options, xmethod="admm", dmethod="cns").solve()
    return watch.curve()


def code_sporco(images: np.ndarray, atoms: np.ndarray, weight: float, penalty: float, iterations: int) -> Curve:
    """Convolutional coding with given atoms of unit norm, by ADMM; arguments as for `learn_sporco`."""
    from sporco.admm.cbpdn import ConvBPDN

    pictures, watch = _one_thread(images), None

    def look(solver) -> bool:
        codes = solver.var_y()
        return watch.note(lambda: solver.reconstruct(codes), codes)

    options = ConvBPDN.Options({
        "Verbose": False, "MaxMainIter": iterations, "Callback": look, "DataType": np.float32, "rho": penalty,
        "RelStopTol": 0.0, "AutoRho": {"Enabled": False},
    })  # fmt: skip
    start = np.ascontiguousarray(atoms.transpose(1, 2, 0), np.float32)
    watch = _Watch(pictures)
    ConvBPDN(start, pictures, weight, options, dimK=1).solve()
    return watch.curve()


def code_spams(pixels: np.ndarray, columns: np.ndarray, weight: float) -> Curve:
    """Exact lasso by homotopy; pixels (pixel, image), columns (pixel, coefficient) of unit norm."""
    import spams

    solve = lambda: spams.lasso(pixels, D=columns, lambda1=weight, mode=2, numThreads=1)  # noqa: E731
    return _once(solve, pixels, columns)


def code_spams_greedy(pixels: np.ndarray, columns: np.ndarray, count: float) -> Curve:
    """Orthogonal matching pursuit with so many coefficients for every image.

    The tolerance is given although it is 0: spams reads an uninitialised one where it is not, and may stop at once.
    """
    import spams

    return _once(lambda: spams.omp(pixels, D=columns, L=round(count), eps=0.0, numThreads=1), pixels, columns)


def code_sklearn(pixels: np.ndarray, columns: np.ndarray, weight: float) -> Curve:
    """Lasso by coordinate descent."""
    from sklearn.decomposition import sparse_encode
    from sklearn.exceptions import ConvergenceWarning

    def solve():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return sparse_encode(pixels.T, columns.T, algorithm="lasso_cd", alpha=weight, max_iter=1000, n_jobs=1).T

    return _once(solve, pixels, columns)


def tuned(run: Callable[[float], Curve], goal: float, of: str, low: float, high: float, tries: int = 5) -> float:
    """Weight of the penalty at which a method ends with about this ``error``, or this number ``active``.

    Secant steps between logarithms, which lie nearly on a line, from the middle of the range; the closest of all tries.
    """
    tried = []
    weight = float(np.sqrt(low * high))
    for _ in range(tries):
        found = float(getattr(run(weight), of)[-1])
        tried.append((np.log(weight), np.log(max(found, 1e-12) / goal)))
        slope = -1.0 if of == "active" else 1.0
        if len(tried) > 1 and tried[-1][0] != tried[-2][0]:
            slope = (tried[-1][1] - tried[-2][1]) / (tried[-1][0] - tried[-2][0]) or slope
        weight = float(np.clip(np.exp(tried[-1][0] - tried[-1][1] / slope), low, high))
    return float(np.exp(min(tried, key=lambda one: abs(one[1]))[0]))


def _once(solve: Callable[[], object], pixels: np.ndarray, columns: np.ndarray) -> Curve:
    begun = time.process_time()
    codes = solve()
    taken = time.process_time() - begun
    codes = codes.toarray() if hasattr(codes, "toarray") else codes
    error = float(np.sqrt(((pixels - columns @ codes) ** 2).mean()))
    n = pixels.shape[1]
    return Curve(*(np.array([v]) for v in (taken / n, error, float((abs(codes) > THRESHOLD).sum()) / n)))


def _one_thread(images: np.ndarray) -> np.ndarray:
    """Tell sporco to use one thread; images as it wants them, (row, col, image)."""
    import sporco.fft

    sporco.fft.pyfftw_threads = 1
    return np.ascontiguousarray(images.transpose(1, 2, 0), np.float32)


class _Watch:
    """Stopwatch that stands still while an iteration's outcome is looked at."""

    def __init__(self, pictures: np.ndarray):
        self._pictures, self._rows, self._spent, self._begun = pictures, [], 0.0, time.process_time()

    def note(self, reconstruct: Callable[[], np.ndarray], codes: np.ndarray) -> bool:
        """Note one iteration; False, as the solver is not to stop."""
        self._spent += time.process_time() - self._begun
        n = self._pictures.shape[-1]
        left = reconstruct().reshape(self._pictures.shape) - self._pictures
        active = float((abs(codes) > THRESHOLD).sum()) / n
        self._rows.append((self._spent / n, float(np.sqrt((left**2).mean())), active))
        self._begun = time.process_time()
        return False

    def curve(self) -> Curve:
        """All iterations."""
        return Curve(*np.array(self._rows).T)
