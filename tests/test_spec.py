"""Every size of the paper's tables follows from the specs; a bad spec is refused with argument, value and remedy."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdd.base.checks import GddError
from gdd.estimator import check_projection
from gdd.model.spec import (
    CALTECH101,
    FACES,
    FACES_INTERPOLATION,
    MNIST,
    ChainSpec,
    LayerSpec,
    ModelSpec,
    Precision,
    RefinementSpec,
)
from gdd.sampler.placement import placement_grid

# model, then per layer: (planes, input, atoms, atom, map, blocks), projected atom, stride
PAPER = {
    "mnist": (MNIST, [(1, 28, 32, 8, 21, 7), (32, 7, 160, 6, 2, 2)], 25, 3),
    "caltech 101": (CALTECH101, [(1, 128, 8, 17, 112, 28), (8, 28, 12, 9, 20, 10), (12, 10, 16, 6, 5, 5)], 96, 8),
    "faces": (FACES, [(1, 128, 16, 17, 112, 28), (16, 28, 24, 9, 20, 10), (24, 10, 36, 6, 5, 5)], 96, 8),
    "faces, half missing": (FACES_INTERPOLATION, [(1, 128, 16, 14, 115, 39), (16, 39, 24, 13, 27, 27)], 52, 3),
}


@pytest.mark.parametrize("name", PAPER)
def test_sizes_of_the_paper_are_derived(name):
    model, layers, projected, stride = PAPER[name]
    for shape, (planes, size, atoms, atom, map_size, grid) in zip(model.shapes(), layers, strict=True):
        assert (shape.planes, shape.atoms) == (planes, atoms)
        for derived, wanted in (
            (shape.input_size, size), (shape.atom_size, atom), (shape.map_size, map_size), (shape.grid, grid),
        ):
            assert derived == (wanted, wanted)
    assert model.projected_size == (projected, projected)
    assert model.stride == (stride, stride)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: LayerSpec(0, (8, 8)), ("atoms", "0")),
    (lambda: LayerSpec(1, (8, 8)), ("atoms", "b0 = 1 - 1/K = 0")),
    (lambda: RefinementSpec().check_model(ModelSpec((LayerSpec(4, (8, 8), (3, 3)),), (28, 28))), ("pool (3, 3)",)),
    (lambda: LayerSpec(4, (0, 8)), ("atom_size", "0")),
    (lambda: LayerSpec(4, (8, 8), (3, 0)), ("pool", "0")),
    (lambda: LayerSpec(4, (8, 8), gamma_e=Precision(("atom",))), ("gamma_e", "atom")),
    (lambda: LayerSpec(4, (8, 8), gamma_w=Precision(("atom",))), ("gamma_w.axes", "atom", "()")),
    (lambda: LayerSpec(4, (8, 8), gamma_d=Precision(rate=-1.0)), ("gamma_d.rate", "-1.0")),
    (lambda: ModelSpec((), (28, 28)), ("layers", "none")),
    (lambda: ModelSpec((LayerSpec(4, (8, 8)), LayerSpec(4, (2, 2))), (28, 28)), ("layer 1", "None")),
    (lambda: ModelSpec((LayerSpec(4, (8, 29)),), (28, 28)), ("col", "29", "28")),
    (lambda: ModelSpec((LayerSpec(4, (8, 8), (3, 3)), LayerSpec(4, (8, 8))), (28, 28)), ("layer 2", "row", "7")),
    (lambda: ChainSpec(5, 0), ("collect", "0")),
    (lambda: ChainSpec(start="zeros"), ("start", "zeros")),
    (lambda: RefinementSpec(dictionary_every=0), ("dictionary_every", "0")),
])
def test_bad_specs_are_refused_by_name(make, words):
    with pytest.raises(GddError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("model", [MNIST, CALTECH101, FACES, FACES_INTERPOLATION])
def test_printed_priors_are_flat_and_held_ones_do_not_run_away(model):
    printed = model.as_printed()
    assert printed.shapes() == model.shapes() and printed != model
    for layer in printed.layers:
        assert (layer.gamma_e, layer.gamma_w) == (Precision(("image",)), Precision())
        assert layer.gamma_d == Precision(("atom", "plane"))
    (bottom, *above), first = model.layers, model.shapes()[0]
    assert bottom.gamma_d.fixed == np.prod(first.dictionary[1:])
    assert model is MNIST or all(layer.gamma_d == Precision(("atom", "plane")) for layer in above)
    assert model.layers[0].gamma_e.fixed and model.layers[0].gamma_w.fixed
    assert printed.with_fixed_precisions(3.0).layers[0].gamma_e.fixed == 3.0
    assert printed.with_fixed_precisions(3.0).layers[1].gamma_w.fixed is None
    assert printed.with_fixed_precisions(3.0, 0.1, 0.01).layers[1].gamma_w.fixed == 0.01


@pytest.mark.parametrize(("size", "atoms", "sizes"), [
    ((28, 28), (32, 160), [((8, 8), (3, 3)), ((6, 6), None)]),  # the paper's own for MNIST
    ((128, 128), (8, 12, 16), [((17, 17), (4, 4)), ((8, 8), (3, 3)), ((6, 6), None)]),
    ((8, 8), (16,), [((3, 3), None)]),
    ((1, 200), (16, 32), [((1, 17), (1, 26)), ((1, 7), None)]),
    ((1, 1), (4,), [((1, 1), None)]),
    ((9, 9), (8, 16), [((3, 3), (2, 2)), ((3, 3), None)]),  # 4 blocks, of which the last is half a one
])
def test_proposed_sizes(size, atoms, sizes):
    model = ModelSpec.for_images(size, 3, atoms)
    assert [(layer.atom_size, layer.pool) for layer in model.layers] == sizes
    assert (model.image_size, model.planes) == (size, 3) and model.layers[0].gamma_e.fixed == 100.0


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 4))
def test_a_proposal_fits_or_the_error_says_what_does(rows, cols, layers):
    """Its atoms project into the image, at every place of a map."""
    try:
        model = ModelSpec.for_images((rows, cols), 1, tuple(range(4, 4 + layers)))
    except GddError as error:
        remedy = eval(re.search(r"such as atoms=(\(.*\))$", str(error)).group(1))
        assert len(remedy) < layers
        model = ModelSpec.for_images((rows, cols), 1, remedy)
    check_projection(model)
    *_, top = model.shapes()
    assert placement_grid(model.image_size, model.projected_size, model.stride) == top.map_size
    sizes = zip(top.map_size, model.stride, model.projected_size, model.image_size, strict=True)
    assert all((places - 1) * stride + reach >= pixels for places, stride, reach, pixels in sizes)
