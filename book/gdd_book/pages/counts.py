"""How many numbers a model has: counted as the paper's tables do, and as this package defines them."""

from __future__ import annotations

from math import prod

import pandas as pd

from gdd.base.axes import ATOM, IMAGE, PLANE
from gdd.base.checks import check_kind, check_whole
from gdd.model.spec import LayerShape, LayerSpec, ModelSpec, Precision


def printed(model: ModelSpec, images: int) -> pd.DataFrame:
    """Factors of every parameter, counted as the paper's tables do.

    Weights, positions, gamma_w and theta all have one number for each element of each map; gamma_e has one for each
    image, gamma_d one for each atom and plane.

    Returns
    -------
    DataFrame
        A row for each layer (from 1) and parameter; columns ``layer``, ``parameter``, ``factors``, ``count``.

    Source: Pu, Yuan & Carin 2015, supplement, tables of parameter numbers.
    Departs: nowhere; the sizes are derived, not copied.
    Checked: tests/test_counts.py (equal to the printed tables, MNIST and Caltech 101).
    """
    images, rows = _checked(model, images), []
    for number, shape in enumerate(model.shapes(), 1):
        planes = () if shape.planes == 1 else (shape.planes,)  # a factor of 1 is not printed
        element = (shape.atoms, *shape.map_size, images)
        rows += _rows(number, D=(shape.atoms, *shape.atom_size, *planes), W=element, Z=element, gamma_e=(images,),
                      gamma_d=(shape.atoms, *planes), gamma_w=element, theta=element)  # fmt: skip
    return pd.DataFrame(rows)


def kept(model: ModelSpec, images: int) -> pd.DataFrame:
    """Factors of every parameter, as this package defines it; the columns are those of `printed`.

    W and Z have one number for each block (weight and place of its one active position). Each precision has the axes
    that its spec gives it. theta has B + 1 entries for each image, atom and shape of block; the row gives their sum
    over shapes. In an elementwise layer it is one probability for each element. Chains integrate both out.

    Source: Pu, Yuan & Carin 2015, Sec. 2.1 and 2.2.
    Departs: theta has B + 1 entries (P12), gamma_w is one per layer (P7).
    Checked: tests/test_counts.py (ragged blocks included).
    """
    images, rows = _checked(model, images), []
    for number, (layer, shape) in enumerate(zip(model.layers, model.shapes(), strict=True), 1):
        block = (shape.atoms, *shape.grid, images)
        rows += _rows(number, D=shape.dictionary, W=block, Z=block, gamma_e=_axes(layer.gamma_e, shape, images),
                      gamma_d=_axes(layer.gamma_d, shape, images), gamma_w=_axes(layer.gamma_w, shape, images),
                      theta=_theta(layer, shape, images))  # fmt: skip
    return pd.DataFrame(rows)


def product(factors: tuple[int, ...]) -> str:
    """Factors as a person writes them, thousands set apart by a narrow space that does not break: ``32 × 8 × 8``."""
    return " × ".join(f"{factor:,}".replace(",", "\u202f") for factor in factors)


def _theta(layer: LayerSpec, shape: LayerShape, images: int) -> tuple[int, ...]:
    if layer.elementwise:
        return (shape.atoms, *shape.map_size, images)
    rows, cols = (
        {size} if n % size == 0 else {size, n % size} if n > size else {n}
        for n, size in zip(shape.map_size, shape.block, strict=True)
    )
    return (shape.atoms, sum(row * col + 1 for row in rows for col in cols), images)


def _axes(precision: Precision, shape: LayerShape, images: int) -> tuple[int, ...]:
    sizes = {IMAGE: images, ATOM: shape.atoms, PLANE: shape.planes}
    return tuple(sizes[axis] for axis in precision.axes) or (1,)


def _rows(layer: int, **parameters: tuple[int, ...]) -> list[dict]:
    return [
        {"layer": layer, "parameter": name, "factors": factors, "count": prod(factors)}
        for name, factors in parameters.items()
    ]


def _checked(model: ModelSpec, images: int) -> int:
    check_kind("model", model, ModelSpec)
    return check_whole("images", images, 1)
