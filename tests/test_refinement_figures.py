"""Figures and tables of refinement: every chain drawn where it belongs, numbers those of the record."""


import numpy as np
import pytest
import xarray as xr

from gdd_book.figures import model as refinement

REFINED, ATOMS = 4, 3
NOISES = ["noise fixed at 44", "noise learned"]


@pytest.fixture
def found():
    """A record of mnist-refinement, as read back, every number its own."""
    rng = np.random.default_rng(0)
    out = {}
    for name in ("residual", "log_joint", "active", "gamma_e", "switched_on", "switched_off"):
        out[name] = ("noise", "refine_draw"), rng.random((2, REFINED)) + 1
    out["blocks_visited"] = ("noise", "refine_draw", "pooled_layer", "strength"), np.full((2, REFINED, 1, 4), 8.0)
    out["blocks_moved"] = ("noise", "refine_draw", "pooled_layer", "strength"), rng.integers(0, 8, (2, REFINED, 1, 4))
    out["numbers_explained"] = ("layer", [10.0, 5.0])
    out["uses"] = ("model", "atom"), np.array([[4, 5, 60], [1, 2, 3], [70, 80, 90]])
    coords = {"noise": NOISES, "model": ["pretrained", *NOISES]}
    return xr.Dataset(out, coords | {"strength": ["below 0.1", "0.1 to 1", "1 to 3", "above 3"]})


def test_health_shows_the_share_that_moved(found):
    figure = refinement.show_health(found)
    moved = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    assert len(moved) == 4
    np.testing.assert_allclose(moved["noise learned; strength above 3"], found.blocks_moved[1, :, 0, 3] / 8)
    switched = found.switched_on + found.switched_off
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), switched[0])


def test_nothing_visited_is_no_share(found):
    found.blocks_visited[0, 0, 0, 3] = 0
    assert np.isnan(refinement.moved_share(found)[0, 0, 0, 3])


def test_health_in_numbers_ends_where_the_chain_ended(found):
    for name in ("residual", "gamma_e", "log_joint", "active", "switched_on"):
        found[name][1, 3] = np.nan
    table = refinement.health_table(found)
    assert table.columns.tolist() == ["noise fixed at 44, 4 sweeps", "noise learned, 3 sweeps"]
    first, last = found.residual[1, 0].item(), found.residual[1, 2].item()
    assert table.loc["residual", "noise learned, 3 sweeps"] == f"{first:.4f}, {last:.4f}"
    assert table.loc["share of strong positions that move"].str.contains("nan").sum() == 0


def test_atoms_of_every_model_are_those_that_its_chain_kept(found):
    rng = np.random.default_rng(2)
    atoms = ("model", "atom", "plane", "atom_row", "atom_col"), rng.integers(-9, 9, (3, ATOMS, 1, 2, 2))
    bottom = ("model", "bottom_atom", "plane", "bottom_row", "bottom_col"), rng.random((3, 4, 1, 2, 3))
    found = found.assign(projected_atoms=atoms, bottom_dictionary=bottom).rename(model="kind")
    shown, below = refinement.most_used(found, 2), found.bottom_dictionary.rename(bottom_atom="atom")
    np.testing.assert_array_equal(shown.sel(kind="pretrained"), found.projected_atoms[0, [2, 1]])
    for atoms in (shown, below):
        assert [panel.get_title() for panel in refinement.show_dictionaries(atoms).axes[:3]] == list(found.kind.values)


def test_starts_have_a_colour_each_and_a_line_a_seed():
    rng = np.random.default_rng(1)
    names = ("log_joint", "residual", "held_out", "active")
    data = {name: (("start", "seed", "draw"), rng.random((2, 3, 8)) + 1) for name in names}
    found = xr.Dataset(data, {"start": ["pretrained", "random"], "seed": [0, 1, 2]})
    figure = refinement.show_starts(found)
    for panel in figure.axes:
        assert len(panel.lines) == 6
        assert len({line.get_color() for line in panel.lines}) == 2
    table = refinement.starts_table(found)
    last = found.residual.sel(start="random")[:, -2:].mean("draw").values
    assert table.loc["random", "residual"] == f"{last.mean():.4f} ± {last.std(ddof=1) / 3**0.5:.4f}"


def test_starts_are_compared_on_the_same_digits():
    """The differences of each seed vary by 2 less than the values themselves."""
    spread, ones = np.array([-10.0, 0.0, 10.0])[:, None], np.ones(8)
    other = spread + np.array([2.0, 3, 4])[:, None]
    names = ("log_joint", "residual", "held_out", "active")
    data = {name: (("start", "seed", "draw"), np.stack([spread * ones, other * ones])) for name in names}
    found = xr.Dataset(data, {"start": ["pretrained", "random"], "seed": [0, 1, 2]})
    table = refinement.starts_table(found)
    assert table.loc["random", "active"] == "3.0 ± 6.4"  # 11 / sqrt(3)
    assert table.loc["random, less pretrained", "active"] == "+3.0 ± 0.6"  # 1 / sqrt(3)
