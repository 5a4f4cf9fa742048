"""What the chapter on accuracy shows: only records of all classes are rows of the paper's table."""

import json

import numpy as np
import xarray as xr

from gdd_book import paper_values
from gdd_book.experiments.caltech import ONE_DECONVOLUTION, PAPERS_READING, PIXELS, READINGS
from gdd_book.figures import caltech

PAPER = paper_values.table("caltech101_accuracy")
KINDS = ["pretrained, ml_sample", "refined, ml_sample", "raw pixels"]
WORDS = ["pretrained, most likely sample", "refined, most likely sample", "raw pixels"]


def record(n_classes, values, model="three layers", per_class=30):
    """A record of caltech-accuracy with these accuracies (split, feature) over images, background left out."""
    values = np.asarray(values, float)
    settings = {
        "model": model, "per_class": per_class, "n_classes": n_classes, "refined": True, "burn_in": 3, "collect": 2,
        "refine_burn_in": 4, "refine_collect": 1, "test_burn_in": 6, "test_collect": 5, "seeds": [0, 1][: len(values)],
    }
    return xr.Dataset(
        {
            "accuracy": (("split", "feature_kind"), values),
            "class_accuracy": (("split", "feature_kind", "class"), np.repeat(values[:, :, None], n_classes, 2)),
            "n_test_images": ("split", [40] * len(values)),
        },
        {"feature_kind": KINDS, "split": settings["seeds"]},
        {"scale": "paper", "parameters": json.dumps(settings)},
    )


#: a record for each of the other cells of the table
OTHERS = [record(101, [[1, 2, 3]], "two layers", n) for n in (15, 30)] + [record(101, [[4, 5, 6]], per_class=15)]


def test_only_all_classes_are_a_row_of_the_table():
    found = [*OTHERS, record(10, [[50, 60, 70]]), record(101, [[30, 40, 50], [34, 42, 50]])]
    table = caltech.table_two(PAPER, found)
    assert table.loc["this paper 3 layers"].tolist() == ["75.24", "82.78"]
    ours = table.filter(like="ours,", axis=0)
    assert ours.shape == (4, 2)
    assert ours.loc["ours, 2 layers, refined"].tolist() == ["2.0", "2.0"]
    # two splits: the standard error is half of their difference
    assert ours.loc["ours, 3 layers, pretrained"].tolist() == ["4.0", "32.0 ± 2.0 (2 splits)"]


def test_features_of_every_cell_side_by_side():
    both = record(101, [[50, 60, 70]])
    longer = record(101, [[90, 80, 70]])
    longer.attrs["parameters"] = longer.attrs["parameters"].replace('"burn_in": 3', '"burn_in": 40')
    table = caltech.every_feature([both, *OTHERS, record(6, [[1, 2, 3]])])
    assert table.index.map(caltech.feature_words).tolist() == WORDS and table.shape == (3, 4)
    assert table["3 layers", "30 images"].tolist() == ["50.0", "60.0", "70.0"]
    for found in ([longer, both], [both, longer]):  # of one cell the longest counts, in both tables
        assert caltech.every_feature(found + OTHERS)["3 layers", "30 images"].tolist() == ["90.0", "80.0", "70.0"]
        assert caltech.table_two(PAPER, found + OTHERS).loc["ours, 3 layers, pretrained", 30] == "90.0"


def changed(found, **settings):
    """The same record with other settings."""
    return found.assign_attrs(parameters=json.dumps(json.loads(found.attrs["parameters"]) | settings))


def test_records_of_other_splits_join_a_cell():
    first = record(101, [[50, 60, 70]])
    again = changed(record(101, [[54, 0, 74]]).isel(feature_kind=[0, 2]).assign_coords(split=[1]), refined=False)
    for found in ([first, again], [again, first]):
        table = caltech.every_feature(found + OTHERS)["3 layers", "30 images"]
        assert table.tolist() == ["52.0 ± 2.0 (2 splits)", "60.0", "72.0 ± 2.0 (2 splits)"]
        ours = caltech.table_two(PAPER, found + OTHERS)[30]
        assert ours["ours, 3 layers, pretrained"] == "52.0 ± 2.0 (2 splits)"
        assert ours["ours, 3 layers, refined"] == "60.0"
    # not the same split again, no shorter chains at test time
    for other in (again.assign_coords(split=[0]), changed(again, test_burn_in=5)):
        table = caltech.every_feature([first, other, *OTHERS])["3 layers", "30 images"]
        assert table.tolist() == ["50.0", "60.0", "70.0"]


def test_table_and_figure_of_features():
    found = record(10, [[50, 60, 70]])
    axes, other = caltech.show_features([found, record(10, [[40, 60, 70]], "two layers")]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == WORDS
    assert [panel.get_title() for panel in (axes, other)] == ["3 layers", "2 layers"]
    assert [panel.get_lines()[1].get_xdata().tolist() for panel in (axes, other)] == [[50, 50], [40, 40]]
    assert axes.get_lines()[-1].get_xdata() == [10, 10]  # guessing
    table = caltech.chains_table([found])
    assert table.loc["ours"].tolist() == ["3 layers", "10", "10.0", 30, "40", "0", "3 + 2", "4 + 1", "6 + 5"]
    assert table.loc["the paper"].tolist() == [""] * 6 + ["1500 + 500"] * 2 + ["500 + 200"]


def test_gain_by_refinement_is_paired_by_class():
    found = record(4, [[50, 60, 70], [50, 56, 70]])
    found.class_accuracy.loc[{"feature_kind": "refined, ml_sample"}] = [52, 48, 54, 46]  # changes 2, -2, 4, -4
    found.class_accuracy.loc[{"split": 1, "feature_kind": "refined, ml_sample"}] += 4  # and so 4, 0, 6, -2 on average
    # sqrt(40 / 3) points of scatter over four classes
    gains = caltech.refinement_gains([found, changed(found, refined=False)])
    assert gains["most likely sample"].to_dict() == {("3 layers", 4, 30, "0, 1"): "+2.0 ± 1.8"}


def test_gain_by_a_third_layer_is_paired_by_class():
    two, three = record(4, [[50, 60, 70]], "two layers"), record(4, [[50, 60, 70]])
    three.class_accuracy.loc[{"feature_kind": "refined, ml_sample"}] = [62, 58, 64, 56]  # changes 2, -2, 4, -4
    table = caltech.third_layer(two, three)["3 layers less 2"]
    assert table.to_dict() == dict(zip(WORDS[:2], ["+0.0 ± 0.0", "+0.0 ± 1.8"], strict=True))


def test_layer_by_layer_beside_one_deconvolution():
    """Eight images: one way has five of them right, the other five and the three others, or none that it has not."""
    one, all_right, none = np.arange(8) < 5, np.ones(8, bool), np.zeros(8, bool)
    ways = ["layer by layer, all layers", ONE_DECONVOLUTION, "layer by layer, layer 1"]
    found = xr.Dataset({
        "right": (("way", "feature_kind", "image"), [[all_right, one], [one, one], [none, one]]),
        "n_features": ("way", [90000, 1200, 80]), "baseline_accuracy": ("baseline", [50.0, 60.0]),
    }, {"way": ways, "feature_kind": ["ml_sample", "mean"], "baseline": ["raw pixels", "gradients"]})
    table = caltech.layerwise_table(found)
    assert table.index.tolist() == [*ways, "raw pixels", "gradients"]
    assert table.iloc[0].tolist() == ["90,000", "100.0", "62.5", ""] and table.iloc[3].tolist() == ["", "", "", "50.0"]
    table = caltech.layerwise_comparison(found)
    assert table.index.tolist() == [(ways[0], ONE_DECONVOLUTION), (ways[2], ONE_DECONVOLUTION)]
    assert table.values.tolist() == [[3, 0, "0.25"], [0, 5, "0.062"]]  # 2 / 2^3 and 2 / 2^5


def readings_record(counts, per_class, **more):
    """A record of caltech-readings: the first readings get the first so many of eight images, all others four."""
    counts = dict.fromkeys(READINGS, 4) | counts
    p = {"per_class": per_class, "model": "three layers", "n_classes": 101, "burn_in": 6, "collect": 2}
    p |= {"test_burn_in": 3, "test_collect": 2} | more
    right = [np.arange(8) < counts[name] for name in READINGS]
    return xr.Dataset(
        {"right": (("reading", "image"), right), "active": ("image", [100, 200, 300, 400, 500, 600, 700, 5000])},
        {"reading": list(READINGS), "class": ["a", "b", "c", "d"]}, {"parameters": json.dumps(p)},
    )


FEW = {PAPERS_READING: 2, "chain, sample without signs": 6, "chain, mean": 1, "chain, mean magnitude": 6}
FEW |= {"alone, mean magnitude": 8}


def test_readings_of_the_same_atoms_side_by_side():
    few, many = readings_record(FEW, 15), readings_record({}, 30)
    table = caltech.readings_table({"15 images a class": few, "30 images a class": many})
    assert table.loc[PAPERS_READING].tolist() == ["25.0 ± 15.3", "50.0 ± 17.7"]  # sqrt(0.25 * 0.75 / 8)
    assert table.loc["raw pixels", "15 images a class"] == "50.0 ± 17.7"
    table = caltech.readings_comparison(few)
    assert table.index[0] == ("chain, sample without signs", PAPERS_READING)
    assert table.wins.tolist() == [4, 5, 4, 3, 2, 4, 4, 4, 0, 4] and not table.losses.any()
    assert table.p.tolist()[:5] == ["0.12", "0.062", "0.12", "0.25", "0.5"]


def test_figure_of_readings():
    axes = caltech.show_readings(readings_record(FEW, 15)).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(READINGS)
    assert axes.get_lines()[-1].get_xdata() == [25, 25]  # guessing among four
    marked = [line.get_xydata()[0].tolist() for line in axes.get_lines() if line.get_marker() == "o"]
    assert marked[:4] == [[25, 0], [75, 1], [12.5, 2], [75, 3]]


def lengthened():
    """Three records that differ in the lengths of their chains, shortest first."""
    longest = readings_record(FEW, 15, burn_in=60, collect=20, test_burn_in=50, test_collect=20)
    return [readings_record({}, 15), readings_record(FEW, 15, test_burn_in=50, test_collect=20), longest]


def test_a_series_is_records_that_differ_in_length_only():
    first, second, last = lengthened()
    others = [readings_record({}, 30), readings_record({}, 30, burn_in=7), readings_record({}, 15, model="two layers")]
    assert list(caltech.series([last, *others, first, second]).values()) == [first, second, last]
    assert list(caltech.series(others).values()) == others[:2]
    assert caltech.series(others[1:]) == caltech.series([]) == {}


def test_readings_by_length():
    group = caltech.series(lengthened())
    table = caltech.readings_table(group)
    assert table.columns.tolist() == ["6 + 2; test 3 + 2", "6 + 2; test 50 + 20", "60 + 20; test 50 + 20"]
    assert table.loc[PAPERS_READING].tolist() == ["50.0 ± 17.7", "25.0 ± 15.3", "25.0 ± 15.3"]
    assert table.loc["raw pixels"].tolist() == ["50.0 ± 17.7"] * 3
    assert table.index.tolist() == list(READINGS)
    table = caltech.lengths_comparison(group)
    assert table.index.get_level_values(0).tolist() == [name for name in READINGS if name[:5] in ("chain", "alone")]
    assert table.iloc[:2, :2].values.tolist() == [[0, 2], [2, 0]]  # as the paper reads it, and without signs


def test_figure_by_length():
    flat = dict(zip(PIXELS, (1, 3, 5), strict=True))
    group = [one.copy(deep=True) for one in lengthened()]
    for record in group:
        for name, count in flat.items():
            record.right.loc[name] = np.arange(8) < count
    axes = caltech.show_lengths(caltech.series(group)).axes[0]
    curves = {container.get_label(): container.lines[0] for container in axes.containers}
    assert list(curves) == list(caltech.CURVES)
    assert curves[PAPERS_READING].get_ydata().tolist() == [50, 25, 25]
    assert curves["alone, mean magnitude"].get_ydata().tolist() == [50, 100, 100]
    lines = {line.get_label(): set(line.get_ydata()) for line in axes.get_lines()}
    assert {name: lines[name] for name in PIXELS} == {name: {12.5 * count} for name, count in flat.items()}
    assert lines["guessing"] == {25} and lines["windows alone, mean magnitude"] == {50}
    named = {text.get_text() for text in axes.figure.legends[0].get_texts()}
    assert named == {*caltech.CURVES, *PIXELS, "guessing", "windows alone, mean magnitude"}
    assert axes.get_xticklabels()[2].get_text() == "60 + 20\ntest\n50 + 20"


def test_time_of_a_test_image():
    p = {"test_burn_in": 500, "test_collect": 200}
    found = xr.Dataset({
        "cpu_seconds": ("image", [0.5, 1.0, 4.0]), "active": ("image", [100, 200, 600]), "gram_cpu_seconds": 17.2,
        "gram_bytes": 846_000_000, "n_atoms": 1616, "n_positions": 25,
    }, attrs={"parameters": json.dumps(p)})
    table = caltech.time_table(found)["ours"].tolist()
    assert table == ["1616", "25", "500 + 200", "3", "1.00", "0.50 to 4.00", "300", "17", "846"]


def test_the_record_to_show_has_most_classes_then_stages_images_and_layers():
    few = record(10, [[50, 60, 70]])
    three = changed(record(101, [[50, 60, 70]]), refined=False)
    two = changed(record(101, [[50, 60, 70]], "two layers"), refined=False)
    refined = record(101, [[50, 60, 70]], per_class=15)
    assert max([few, two, three], key=caltech.size_of) is three
    assert max([few, refined, two, three], key=caltech.size_of) is refined
    assert caltech.size_of(changed(record(6, [[1, 2, 3]], "faces"), refined=False)) == (6, 1, 30, 3)


def test_best_features_in_a_table_and_among_the_printed_ones():
    values = np.array([[[60.0, 40.0], [70.0, 50.0]], [[62.0, 40.0], [74.0, 50.0]]])  # (split, count, feature)
    coords = {"count": [15, 30], "feature_kind": ["one-step features", "raw pixels"]}
    found = xr.Dataset({"accuracy": (("split", "count", "feature_kind"), values)}, coords)
    table = caltech.best_table(found)
    assert table["15 images"].tolist() == ["61.0 ± 1.0", "40.0 ± 0.0"]
    assert table["30 images"].tolist() == ["72.0 ± 2.0", "50.0 ± 0.0"]
    axes = caltech.show_best(PAPER, found).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names.index("raw pixels") < names.index("CDBN") < names.index("one-step features") < names.index("ScSPM")
    assert axes.get_lines()[0].get_xdata().tolist() == [40, 50]
