"""The paper's tables of parameter numbers follow from the specs; ours count what is kept."""

import pytest

from gdd.model import spec
from gdd_book import paper_values
from gdd_book.figures.model import kept_counts, printed_counts


@pytest.mark.parametrize(
    ("model", "table"), [(spec.MNIST, "mnist_parameters"), (spec.CALTECH101, "caltech101_parameters")]
)
def test_printed_tables_follow_from_the_spec(model, table):
    paper = paper_values.table(table)
    derived = printed_counts(model.as_printed(), paper.attrs["images"])
    assert derived[["layer", "parameter"]].values.tolist() == paper[["layer", "parameter"]].values.tolist()
    assert [list(factors) for factors in derived.factors] == paper.factors.tolist()


def test_theta_has_one_more_entry_than_positions_and_gamma_w_is_one_per_layer():
    kept = kept_counts(spec.MNIST, 100).set_index(["layer", "parameter"]).factors
    assert kept[1, "theta"] == (32, 10, 100)  # 3 x 3 positions and "none"
    assert kept[1, "W"] == kept[1, "Z"] == (32, 7, 7, 100)
    assert kept[1, "gamma_w"] == kept[2, "gamma_w"] == (1,)
    assert kept[2, "theta"] == (160, 2, 2, 100)


def test_ragged_blocks_have_a_theta_for_each_shape():
    """115 = 38 * 3 + 1: full, right edge, bottom edge and corner blocks of 9, 3, 3 and 1 positions."""
    kept = kept_counts(spec.FACES_INTERPOLATION.as_printed(), 1).set_index(["layer", "parameter"]).factors
    assert kept[1, "theta"] == (spec.FACES_INTERPOLATION.layers[0].atoms, 10 + 4 + 4 + 2, 1)
    assert kept[1, "W"][1:3] == (39, 39)
