"""Test errors before and after refinement, on the same digits: records of
`gdd_book.experiments.mnist.mnist_refined_error`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from gdd_book.experiments.mnist import ATOMS
from gdd_book.figures.curves import NO_RECORD, said, spread_of
from gdd_book.records import settings


def refined_error_table(found: xr.Dataset) -> pd.DataFrame:
    """Test error in %, mean and standard error over the subsets of `gdd_book.experiments.mnist.mnist_refined_error`."""
    rows = {
        (str(atoms), str(kind)): of_subsets(found.error.sel(atoms=atoms, feature_kind=kind))
        for atoms in found.atoms.values
        for kind in found.feature_kind.values
    }
    rows["raw pixels", ""] = of_subsets(found.error_of_pixels)
    for atoms, kind in [key for key in rows if key[0].startswith("refined")]:
        error = found.error.sel(feature_kind=kind)
        change = error.sel(atoms=atoms) - error.sel(atoms="pretrained")
        rows[f"{atoms}, less pretrained", kind] = of_subsets(change)
    return pd.Series(rows, name="test error, %").to_frame()


def refined_size_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test error in % of the paper's feature before and after refinement, a row for each record of paper scale.

    Parameters
    ----------
    found : records of `gdd_book.experiments.mnist.mnist_refined_error`

    Returns
    -------
    DataFrame
        By training digits; "change" is of refined atoms on the same digits, with its standard error where there are
        several subsets. The last but one column has refined atoms under the noise precision of pretraining.
    """
    rows = []
    for record in by_size(found):
        p = settings(record)
        before, after, held = (record.error.sel(atoms=atoms, feature_kind="ml_sample") for atoms in ATOMS)
        rows.append({
            "training digits": p["n_train"], "test digits": p["n_test"], "subsets": record.sizes["subset"],
            "sweeps of pretraining": f"{p['burn_in']} + {p['collect']}",
            "sweeps of refinement": f"{p['refine_burn_in']} + {p['refine_collect']}",
            "pretrained": of_subsets(before), "refined": of_subsets(after),
            "change": of_subsets(after - before), "refined, pretraining's noise": of_subsets(held),
            "raw pixels": of_subsets(record.error_of_pixels),
        })  # fmt: skip
    return pd.DataFrame(rows).set_index("training digits") if rows else pd.DataFrame({"test error": [NO_RECORD]})


def refined_curve(found: Sequence[xr.Dataset], atoms: str) -> dict[int, np.ndarray]:
    """Errors of the subsets by training digits, of the paper's feature with these of `ATOMS`; of two the longer."""
    return {
        settings(record)["n_train"]: record.error.sel(atoms=atoms, feature_kind="ml_sample").values
        for record in by_size(found)
    }  # fmt: skip


def by_size(found: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Of these records those of paper scale, by the number of training digits, then by the sweeps of refinement."""

    def key(record: xr.Dataset) -> tuple[int, int]:
        p = settings(record)
        return p["n_train"], p["refine_burn_in"] + p["refine_collect"]

    return sorted((record for record in found if record.attrs["scale"] == "paper"), key=key)


def refined_error_verdict(found: xr.Dataset) -> str:
    """Whether refined atoms classify otherwise than pretrained ones: two standard errors of the paired difference."""
    lines = []
    for kind in found.feature_kind.values:
        error = found.error.sel(feature_kind=kind)
        change = (error.sel(atoms="refined") - error.sel(atoms="pretrained")).values
        wide = 2 * np.std(change, ddof=1) / len(change) ** 0.5
        word = "no difference that this many subsets could show"
        if abs(change.mean()) > wide:
            word = "better after refinement" if change.mean() < 0 else "worse after refinement"
        lines.append(f"{kind}: {word} ({change.mean():+.1f} points, twice its standard error {wide:.1f})")
    return "\n".join(lines)


def of_subsets(values: xr.DataArray) -> str:
    """Mean over the subsets as words, with its standard error where there are several."""
    return said(float(values.mean()), spread_of(values.values))
