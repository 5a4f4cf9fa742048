"""Numbers that the paper does not print: every parameter of an experiment is listed, and every value is in the code."""

import pytest
from IPython.display import HTML

from gdd_book.experiments import EXPERIMENTS
from gdd_book.pages import held


def test_every_parameter_of_an_experiment_is_listed_and_no_other():
    known, scales = held.load(), [scale for one in EXPERIMENTS.values() for scale in one.scales.values()]
    listed = {name for one in known["held"] for name in one["parameters"]} | {*known["printed"], *known["design"]}
    assert {name for scale in scales for name in scale} == listed


@pytest.mark.parametrize("one", held.load()["held"], ids=lambda one: one["name"])
def test_values_are_in_the_code(one):
    for place in one["value"].values():
        assert not (place.startswith("gdd") and held.value_of(place) == place)


def test_the_table_has_a_row_for_each():
    table = held.table()
    assert isinstance(table, HTML) and table.data.count("<tr><td>") == len(held.load()["held"])
    assert 0 < held.table(not_varied_only=True).data.count("<tr><td>") < len(held.load()["held"])
