"""What the chapter on accuracy shows: which records are its rows, gains paired by class."""

import json

import numpy as np
import xarray as xr

from gdd_book import paper_values
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


def changed(found, **settings):
    """The same record with other settings."""
    return found.assign_attrs(parameters=json.dumps(json.loads(found.attrs["parameters"]) | settings))


def test_records_of_other_splits_join_a_cell():
    first = record(101, [[50, 60, 70]])
    again = changed(record(101, [[54, 0, 74]]).isel(feature_kind=[0, 2]).assign_coords(split=[1]), refined=False)
    for found in ([first, again], [again, first]):
        table = caltech.every_feature(found + OTHERS)["3 layers", "30 images"]
        assert table.tolist() == ["50.0, 54.0 (2 splits)", "60.0", "70.0, 74.0 (2 splits)"]
        ours = caltech.table_two(PAPER, found + OTHERS)[30]
        assert ours["ours, 3 layers, pretrained"] == "50.0, 54.0 (2 splits)"
        assert ours["ours, 3 layers, refined"] == "60.0"
    # not the same split again, no shorter chains at test time
    for other in (again.assign_coords(split=[0]), changed(again, test_burn_in=5)):
        table = caltech.every_feature([first, other, *OTHERS])["3 layers", "30 images"]
        assert table.tolist() == ["50.0", "60.0", "70.0"]


def test_gain_by_refinement_is_paired_by_class():
    found = record(4, [[50, 60, 70], [50, 56, 70]])
    found.class_accuracy.loc[{"feature_kind": "refined, ml_sample"}] = [52, 48, 54, 46]  # changes 2, -2, 4, -4
    found.class_accuracy.loc[{"split": 1, "feature_kind": "refined, ml_sample"}] += 4  # and so 4, 0, 6, -2 on average
    # sqrt(40 / 3) points of scatter over four classes, 3.18 standard errors to each side
    gains = caltech.refinement_gains([found, changed(found, refined=False)])
    assert gains["most likely sample"].to_dict() == {("3 layers", 4, 30, "0, 1"): "+2.0 ± 5.8"}


def test_gain_by_a_third_layer_is_paired_by_class():
    two, three = record(4, [[50, 60, 70]], "two layers"), record(4, [[50, 60, 70]])
    three.class_accuracy.loc[{"feature_kind": "refined, ml_sample"}] = [62, 58, 64, 56]  # changes 2, -2, 4, -4
    table = caltech.third_layer(two, three)["3 layers less 2"]
    assert table.to_dict() == dict(zip(WORDS[:2], ["+0.0 ± 0.0", "+0.0 ± 5.8"], strict=True))
