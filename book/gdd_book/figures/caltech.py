"""Figures and tables of the Caltech chapters that show dictionaries: records in, a figure or a table out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, IMAGE
from gdd_book import paper_values, records
from gdd_book.dictionaries import unpack
from gdd_book.figures.completion import CHANCE
from gdd_book.figures.dictionaries import atom_mosaic
from gdd_book.figures.style import FONT, FULL, bare, finish, new_figure
from gdd_book.records import settings
from gdd_book.training import CALTECH, STAGES

FOUND = 0.3  # correlation below which atoms count as different: the best pairing of unrelated ones reaches some tenths
DEALS = 200
MEDIAN = (np.pi / 2) ** 0.5  # standard error of a median over that of a mean, Gaussian values


def largest(name: str, scale: str, stage: str = STAGES[0]) -> xr.Dataset | None:
    """Record of an experiment on real images at this scale that holds this stage; of several the largest, or None.

    The largest has the most training images times sweeps, counted in the stage asked for.
    """
    prefix = "refine_" if stage == STAGES[1] else ""

    def size(record: xr.Dataset) -> int:
        p = settings(record)
        return p["n_train"] * (p[prefix + "burn_in"] + p[prefix + "collect"])

    known = [r for r in records.every(name) if r.attrs["scale"] == scale and settings(r)["data"] in CALTECH]
    return max((r for r in known if stage in settings(r).get("stages", STAGES)), key=size, default=None)


def lengths(found: xr.Dataset) -> str:
    """One line that says how long the chains of a record were, and how long the paper's."""
    p = settings(found)
    paper = "{} + {}".format(*(paper_values.fact(name)["value"] for name in ("burn_in", "collect")))
    refined = STAGES[1] in p.get("stages", STAGES)
    filling = ""
    if "n_test" in p and "test_burn_in" in p:
        test = "{} + {}".format(*(paper_values.fact(f"test_{name}")["value"] for name in ("burn_in", "collect")))
        filling = f"; {p['n_test']} test images, {p['test_burn_in']} + {p['test_collect']} sweeps (the paper: {test})"
    words = f"refinement {p['refine_burn_in']} + {p['refine_collect']}" if refined else "no refinement"
    return (
        f"Chains: pretraining {p['burn_in']} + {p['collect']} sweeps a layer, {words} (the paper: {paper} each); "
        f"{p['n_train']} images of a class in each training set{filling}"
    )


def show_contrast(before: np.ndarray | xr.DataArray, after: np.ndarray | xr.DataArray, count: int = 4) -> Figure:
    """Pictures as they are, from black to white, above the same ones normalised, zero mid grey.

    Parameters
    ----------
    before, after : (image, row, col)
    count : pictures
    """
    figure, axes = new_figure(2, 1, height=2 * FULL / count + 0.5)
    scales = ({"vmin": 0, "vmax": 255}, {"vmin": -2, "vmax": 2})
    titles = ("before", "after local contrast normalisation")
    for panel, title, pictures, scale in zip(axes, titles, (before, after), scales, strict=True):
        bare(panel).set_title(title, fontsize=FONT - 1)
        panel.imshow(np.concatenate(list(np.asarray(pictures)[:count]), axis=1), cmap="gray", **scale)
    return finish(figure)


def stages_of(found: xr.Dataset, layer: int, count: int | None = None) -> xr.DataArray:
    """Atoms of one layer, from 1, of every stage: (kind, atom, plane, atom_row, atom_col), as `show_dictionaries`."""
    parts = [unpack(found, layer, stage=stage).isel(atom=slice(count)) for stage in found.stage.values]
    return xr.concat(parts, "kind").assign_coords(kind=found.stage.values)


def sharpness_table(found: xr.Dataset) -> pd.DataFrame:
    """Results of `gdd_book.experiments.atoms.caltech_faces` by layer and kind: sharpness, then the match between the
    two sets.

    Medians over atoms. The last two columns, of the top layer alone, are the error on held-out images and the active
    coefficients.
    """
    rows, top = {}, int(found.layer.max())
    for layer in range(1, top + 1):
        part = found.isel(atom=found.layer.values == layer)
        for kind in found.kind.values:
            one = part.sel(kind=kind)
            rows[layer, kind] = {
                "high-frequency share": f"{float(one.high_frequency_share.median()):.3f}",
                "kurtosis": f"{float(one.gradient_kurtosis.median()):.1f}",
                "match": f"{float(one.correlation.median()):.2f}",
                "held-out error": f"{float(one.rms.mean()):.3f}" if layer == top else "",
                "active": f"{float(one.active.mean()):.0f}" if layer == top else "",
            }
    table = pd.DataFrame(rows).T
    table.index.names = ["layer", ""]
    return table


def of_layer(found: xr.Dataset, layer: int) -> xr.Dataset:
    """The part of a record that belongs to the atoms of one layer, from 1."""
    return found.isel(atom=found.layer.values == layer)


def show_class(found: xr.Dataset, name: str, stage: str) -> Figure:
    """One class of `gdd_book.experiments.atoms.caltech_classes`: images, then atoms of each layer; 0 is mid grey."""
    one = found.sel({"class": name})
    images = one["images"].values[:, None] / 100
    layers = [unpack(one, layer, stage=stage).values for layer in range(1, int(found.layer.max()) + 1)]
    return _panels([(f"{name}: images, normalised", images, 3), *_titled(layers)])


def show_joint(found: xr.Dataset, stage: str) -> Figure:
    """All classes of `gdd_book.experiments.atoms.caltech_joint`: an image of each, then atoms of each layer."""
    layers = [unpack(found, layer, stage=stage).values for layer in range(1, int(found.layer.max()) + 1)]
    return _panels([("an image of each class", found["images"].values[:, None] / 100, 3), *_titled(layers)])


def _titled(layers: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray, int]]:
    return [(f"layer {n}", atoms, int(np.ceil(len(atoms) ** 0.5))) for n, atoms in enumerate(layers, 1)]


def _panels(parts: Sequence[tuple[str, np.ndarray, int]]) -> Figure:
    """Mosaics (title, pictures, pictures in a row), two beside one another, each picture over its largest magnitude."""
    tall = max(-(-len(pictures) // across) / across for _, pictures, across in parts)
    figure, axes = new_figure(-(-len(parts) // 2), 2, height=-(-len(parts) // 2) * (FULL / 2 * tall + 0.28))
    for panel in axes.flat:
        bare(panel)
    for panel, (title, pictures, across) in zip(axes.flat, parts, strict=False):
        panel.set_title(title, fontsize=FONT - 1)
        largest = np.abs(pictures).max(axis=(1, 2, 3), keepdims=True)
        scaled = np.divide(pictures, largest, out=np.zeros(pictures.shape), where=largest > 0)
        panel.imshow(atom_mosaic(scaled, across), cmap="gray", vmin=-1, vmax=1)
    return finish(figure)


def alike_table(found: xr.Dataset) -> pd.DataFrame:
    """Median correlation of matched atoms by layer: two sets of one class, and two classes; one column pair a stage."""
    columns = {}
    for stage in found.stage.values:
        for name, words in (("same", "same class"), ("different", "two classes")):
            values = found[name].sel(stage=stage)
            columns[stage, words] = [f"{float(of_layer(values, n).median()):.2f}" for n in _layers(found)]
    return pd.DataFrame(columns, index=pd.Index(_layers(found), name="layer"))


def how_alike(found: xr.Dataset, stage: str) -> list[str]:
    """Say for each layer whether atoms of two classes match as well as those of two sets of images of one class.

    As well: the medians are less than `CHANCE` standard errors apart, atoms taken as independent. Where not even one
    class gives the same atoms twice, with a median of `FOUND`, nothing is said about two.
    """
    said = []
    for layer in _layers(found):
        same, other = (of_layer(found[name].sel(stage=stage), layer).values.ravel() for name in ("same", "different"))
        chance = CHANCE * MEDIAN * np.hypot(same.std() / len(same) ** 0.5, other.std() / len(other) ** 0.5)
        gap = np.median(same) - np.median(other)
        says = "as well as" if abs(gap) < chance else "worse than" if gap > 0 else "better than"
        numbers = f"({np.median(other):.2f} beside {np.median(same):.2f}, two standard errors {chance:.2f})"
        if np.median(same) < FOUND:
            outcome = "one class does not give the same atoms twice, nothing to compare"
        else:
            outcome = f"atoms of two classes match {says} those of one class"
        said.append(f"{stage}, layer {layer}: {outcome} {numbers}")
    return said


def class_shares(found: xr.Dataset, layer: int) -> xr.DataArray:
    """Share of the squared weight of every atom of a layer that each class has, (class, atom)."""
    return of_layer(found.weight_share, layer).groupby("class").sum(IMAGE, skipna=False).transpose("class", ATOM)


def show_shares(found: xr.Dataset) -> Figure:
    """Share of every atom's weight that each class of `gdd_book.experiments.atoms.caltech_joint` has; a panel for each
    layer.
    """
    layers = _layers(found)
    figure, axes = new_figure(len(layers), 1, height=1.75 * len(layers))
    for panel, layer in zip(axes, layers, strict=True):
        shares = class_shares(found, layer)
        order = np.argsort(-np.nan_to_num(shares.values).max(axis=0), kind="stable")
        drawn = panel.imshow(shares.values[:, order], cmap="viridis", vmin=0, vmax=1, aspect="auto")
        panel.set_yticks(range(len(shares)), [str(name).replace("_", " ") for name in shares["class"].values])
        panel.tick_params(labelsize=FONT - 3)
        panel.set_title(f"layer {layer}", fontsize=FONT - 1)
    axes[-1].set_xlabel("atoms, the most one-sided first")
    figure.colorbar(drawn, ax=axes, label="share of an atom's squared weight", fraction=0.04)
    return finish(figure)


def share_table(found: xr.Dataset) -> pd.DataFrame:
    """Largest share that one class has of an atom's weight: median over atoms, by layer.

    Beside it the same for classes dealt out to the images at random, mean and standard deviation over `DEALS` deals,
    and the atoms of which one class has more than half.
    """
    rows = {}
    for layer in _layers(found):
        shares, classes = of_layer(found.weight_share, layer).values, found["class"].values
        most, generator = _most(shares, classes), np.random.default_rng(0)
        dealt = [np.nanmedian(_most(shares, generator.permutation(classes))) for _ in range(DEALS)]
        rows[layer] = {
            "median": f"{np.nanmedian(most):.2f}",
            "classes at random": f"{np.mean(dealt):.2f} ± {np.std(dealt):.2f}",
            "more than half": f"{(most > 0.5).sum()} of {len(most)}",
        }
    table = pd.DataFrame(rows).T
    table.index.name = "layer"
    return table


def _most(shares: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Largest share of a class for every atom, (atom,)."""
    return np.max([shares[classes == name].sum(axis=0) for name in np.unique(classes)], axis=0)


def _layers(found: xr.Dataset) -> list[int]:
    return list(range(1, int(found.layer.max()) + 1))
