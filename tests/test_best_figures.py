"""Of several records of the best features, which the chapter shows."""

import json

import numpy as np
import xarray as xr

from gdd_book.experiments.studies.mnist_features import KINDS as ALL_KINDS
from gdd_book.experiments.studies.mnist_features import MARGINS
from gdd_book.figures.mnist import subset_errors, subset_table

KINDS = ALL_KINDS[:4]


def record(sizes, trials, first=3.0):
    """A record of mnist-best; the second size has one trial fewer."""
    values = first + np.arange(len(sizes) * trials * len(KINDS), dtype=float).reshape(len(sizes), trials, len(KINDS))
    values[1:, -1] = np.nan
    choice = np.array([[5.0, 4.0, 3.0, 6.0], [5.0, 4.5, 3.5, 6.0]])
    return xr.Dataset({
        "error": (("size", "trial", "feature_kind"), values), "choice": (("subset", "candidate"), choice),
        "chosen": 2, "margin": ("candidate", list(MARGINS)),
    }, {"size": list(sizes), "feature_kind": list(KINDS)}, {"scale": "paper", "parameters": json.dumps({})}
    )


def test_of_two_records_of_a_size_the_one_with_more_subsets_counts():
    found = subset_errors([record([5000], 1), record([1000], 3), record([1000], 2, 50.0)], KINDS)
    assert found.feature_kind.values.tolist() == list(KINDS) and found["size"].values.tolist() == [1000, 5000]
    np.testing.assert_array_equal(found.sel(feature_kind=KINDS[0], size=1000), [3, 7, 11])
    np.testing.assert_array_equal(found.sel(feature_kind=KINDS[0], size=5000), [3, np.nan, np.nan])


def test_a_record_of_another_feature_joins_the_table():
    other = record([1000], 2).isel(feature_kind=[0]).assign_coords(feature_kind=["scattering"])
    table = subset_table(subset_errors([other, record([1000, 5000], 2)], KINDS))
    assert table["scattering"].tolist() == ["5.00 \u00b1 2.00 (2)", "not run"]
