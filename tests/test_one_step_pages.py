"""Figures and tables of one-step features show what their records hold."""

import numpy as np
import pytest

from gdd_book import records
from gdd_book.figures import one_step


@pytest.fixture(scope="module")
def curves():
    return sorted(records.every("few-labels"), key=lambda record: record.attrs["data_name"])


def test_few_labels_are_drawn_a_panel_for_each_record(curves):
    figure = one_step.show_few_labels(curves)
    assert len(figure.axes) == len(curves) == 2
    for axes, record in zip(figure.axes, curves, strict=True):
        drawn = np.array([line.get_ydata() for line in axes.lines if line.get_marker() == "o"], float)
        np.testing.assert_allclose(drawn, record.error.mean("trial").transpose("feature_kind", "count"))


def test_tables_have_a_row_for_each_feature(curves):
    for record in curves:
        table = one_step.few_labels_table(record)
        assert table.index.tolist() == record.feature_kind.values.tolist() and len(table.columns) == 5
    cost = records.find("one-step-cost", "paper")
    assert one_step.cost_table(cost).loc["four, whitened", "test error, %"] == f"{float(cost.error[6]):.2f}"
    assert one_step.settings_table(records.every("few-labels-settings")).shape == (12, 2)
    seeds = records.find("chain-seeds", "paper")
    assert one_step.seeds_table(seeds).columns.tolist() == ["1 chain", "4 chains", "8 chains", "ms an image and chain"]


def test_what_the_pages_say_of_the_records(curves):
    """Your own images, first lines: digits with twenty labels of a class, and patches."""
    digits, patches = (record.error.sel(count=20).mean("trial").to_series() for record in curves)
    kinds = "OneStepFeatures()", "patches, dictionary learning", "scattering (kymatio, numpy)", "raw pixels"
    assert [round(digits[kind], 1) for kind in kinds] == [1.9, 2.6, 3.4, 4.7]
    (preset,) = (kind for kind in digits.index if kind.startswith("OneStepFeatures.digits"))
    assert (curves[0].error.mean("trial").idxmin("feature_kind") == preset).all()
    assert set(curves[1].error.mean("trial").idxmin("feature_kind").values) == {"scattering (kymatio, numpy)"}
    ours = patches[[kind for kind in patches.index if kind.startswith("OneStep")]]
    others = patches[["scattering (kymatio, numpy)", "k-means patches", "raw pixels"]]
    assert [round(n) for n in (*others, ours.max(), ours.min())] == [24, 25, 48, 37, 30]
    correlation = records.find("chain-seeds", "paper").correlation
    assert float(correlation.sel(chains=8).min() - correlation.sel(chains=1).max()) > 0.2
    assert abs(float(correlation.diff("sweeps").max())) < 0.05
