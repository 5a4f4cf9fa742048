"""What the pages say of one-step features is what their records hold."""

from gdd_book import records


def test_what_the_pages_say_of_the_records():
    """Your own images, first lines: digits with twenty labels of a class, and patches."""
    curves = sorted(records.every("few-labels"), key=lambda record: record.attrs["data_name"])
    digits, patches = (record.error.sel(count=20).mean("trial").to_series() for record in curves)
    kinds = "OneStepFeatures()", "patches, dictionary learning", "scattering (kymatio, numpy)", "raw pixels"
    assert [round(digits[kind], 1) for kind in kinds] == [1.9, 2.6, 3.4, 4.7]
    (preset,) = (kind for kind in digits.index if kind.startswith("OneStepFeatures.digits"))
    assert (curves[0].error.mean("trial").idxmin("feature_kind") == preset).all()
    assert set(curves[1].error.mean("trial").idxmin("feature_kind").values) == {"scattering (kymatio, numpy)"}
    ours = patches[[kind for kind in patches.index if kind.startswith("OneStep")]]
    others = patches[["scattering (kymatio, numpy)", "k-means patches", "raw pixels"]]
    assert [round(n) for n in (*others, ours.max(), ours.min())] == [24, 25, 48, 37, 30]
