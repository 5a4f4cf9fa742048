"""Models and chains as frozen data, checked when made; sizes derived from them; the paper's settings as constants.

A variant of the model is a field of a spec, never a second copy of the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod

from gdd.base.axes import ATOM, IMAGE, PLANE
from gdd.base.checks import (
    LARGEST_COUNT,
    GddError,
    check_block,
    check_choice,
    check_kind,
    check_lengths,
    check_pair,
    check_precision,
    check_real,
    check_seed,
    check_whole,
)
from gdd.model.pooling import Size, block_grid

#: root mean square of the pixels, relative to their background, for which the precisions of
#: `ModelSpec.with_fixed_precisions` are meant: that of MNIST's digits, black at 0 and white at 1
PIXEL_RMS = 1 / 3
#: variance of the noise in refinement, in mean squares of the pixels relative to their background: of eight values the
#: one that best predicts hidden halves of held-out training digits (book, model/depth)
NOISE_IN_SIGNALS = 4.5
#: per axis: largest size of a proposed bottom atom in pixels, the share of the axis that an atom covers, and the number
#: of blocks after the pooling of all layers
LARGEST_ATOM, COVERED_SHARE, TOP_BLOCKS = 17, 2 / 7, 7
#: the paper's a = b = 1e-6 for every precision (Sec. 4, after Paisley & Carin 2009)
FLAT = 1e-6


@dataclass(frozen=True)
class Precision:
    """Prior of a precision, and the axes along which it varies.

    Each entry has the prior ``Gamma(shape, rate)``, unless ``fixed`` gives its value; then it is not drawn. Along all
    axes other than ``axes`` the precision is shared.
    """

    axes: tuple[str, ...] = ()
    shape: float = FLAT
    rate: float = FLAT
    fixed: float | None = None

    def __post_init__(self) -> None:
        check_kind("axes", self.axes, (tuple, list))
        _set_fields(self, axes=tuple(self.axes))

    def check(self, name: str, allowed: tuple[str, ...]) -> None:
        """Refuse axes that this precision cannot have, and values that are not positive."""
        if self.axes and not allowed:
            raise GddError(f"{name}.axes: {self.axes} given; it is one number for the whole layer, () is needed")
        for axis in self.axes:
            check_choice(f"{name}.axes", axis, allowed)
        for label, value in (("shape", self.shape), ("rate", self.rate), ("fixed", self.fixed)):
            if value is not None or label != "fixed":
                _set_fields(self, **{label: check_precision(f"{name}.{label}", value)})


@dataclass(frozen=True)
class LayerSpec:
    """One layer: number and size of its atoms, pooling, and priors.

    Attributes
    ----------
    atoms : K
    atom_size : (atom_row, atom_col)
    pool : (row, col) of a pooling block; None for a top layer, whose elements are Bernoulli one by one
    gamma_e : noise precision; may vary by image. Default: by image (the paper's tables)
    gamma_d : precision of the dictionary; may vary by atom and plane. Default: by both
    gamma_w : precision of the weights, one number (P7 in the errata)
    """

    atoms: int
    atom_size: Size
    pool: Size | None = None
    gamma_e: Precision = field(default_factory=lambda: Precision((IMAGE,)))
    gamma_d: Precision = field(default_factory=lambda: Precision((ATOM, PLANE)))
    gamma_w: Precision = field(default_factory=Precision)

    def __post_init__(self) -> None:
        pool = None if self.pool is None else check_block("pool", self.pool)
        size = check_pair("atom_size", self.atom_size)
        _set_fields(self, atoms=check_whole("atoms", self.atoms, 1), atom_size=size, pool=pool)
        if self.elementwise and self.atoms == 1:
            raise GddError("atoms: 1 given in a top layer, where b0 = 1 - 1/K = 0 is no prior; use 2 or more")
        for name, allowed in (("gamma_e", (IMAGE,)), ("gamma_d", (ATOM, PLANE)), ("gamma_w", ())):
            check_kind(name, getattr(self, name), Precision)
            getattr(self, name).check(name, allowed)

    @property
    def elementwise(self) -> bool:
        """Whether every element of a map has its own Bernoulli variable, as in a top layer."""
        return self.pool is None

    @property
    def block(self) -> Size:
        """Size of the blocks in which at most one position is active: the pool, or (1, 1) in a top layer."""
        return self.pool or (1, 1)

    @property
    def beta(self) -> tuple[float, float]:
        """(a0, b0) = (1/K, 1 - 1/K), the Beta prior of an element of a top layer (paper, Sec. 4)."""
        return 1 / self.atoms, 1 - 1 / self.atoms


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer, derived from its spec and its input. All sizes are (row, col)."""

    planes: int
    input_size: Size
    atoms: int
    atom_size: Size
    map_size: Size
    block: Size
    grid: Size  # blocks, which are the rows and columns of the next layer's input
    stride: Size

    @property
    def dictionary(self) -> tuple[int, int, int, int]:
        """Shape of the dictionary, (atom, plane, atom_row, atom_col)."""
        return (self.atoms, self.planes, *self.atom_size)


@dataclass(frozen=True)
class ModelSpec:
    """Layers from the data upwards, and the images they explain."""

    layers: tuple[LayerSpec, ...]
    image_size: Size
    planes: int = 1

    def __post_init__(self) -> None:
        check_kind("layers", self.layers, (tuple, list))
        if not self.layers:
            raise GddError("layers: none given, at least one LayerSpec is needed")
        for number, layer in enumerate(self.layers, 1):
            check_kind(f"layers: layer {number}", layer, LayerSpec)
        _set_fields(self, layers=tuple(self.layers), image_size=check_pair("image_size", self.image_size))
        _set_fields(self, planes=check_whole("planes", self.planes, 1))
        for number, layer in enumerate(self.layers[:-1], 1):
            if layer.pool is None:
                raise GddError(f"layers: layer {number} has pool None, which only the top layer may have")
        self.shapes()

    def shapes(self) -> tuple[LayerShape, ...]:
        """Sizes of every layer, bottom first; GddError if an atom does not fit its input."""
        shapes, size, planes, stride = [], self.image_size, self.planes, (1, 1)
        for number, layer in enumerate(self.layers, 1):
            shapes.append(layer_shape(layer, size, planes, stride, f"layer {number}"))
            size, planes = shapes[-1].grid, layer.atoms
            stride = tuple(s * p for s, p in zip(stride, layer.block, strict=True))
        return tuple(shapes)

    @property
    def stride(self) -> Size:
        """Pixels between neighbouring positions of a projected top atom, the product of the pools below."""
        return self.shapes()[-1].stride

    @property
    def projected_size(self) -> Size:
        """(row, col) of a top atom projected to the image plane."""
        below = self.layers[:-1]
        return tuple(
            projected_length([layer.atom_size[axis] for layer in self.layers], [layer.pool[axis] for layer in below])
            for axis in (0, 1)
        )

    @classmethod
    def for_images(cls, image_size: Size, planes: int = 1, atoms: Sequence[int] = (32, 64)) -> ModelSpec:
        """Propose a model for images of this size: a layer for every entry of ``atoms``, bottom first.

        An atom covers two sevenths of its layer's input, at most 17 pixels, as in the paper. Pooling leaves about
        7 blocks a side to the top layer, whose atoms span most of these but do not extend beyond the image when
        projected. Signals (1, n) have atoms and blocks of one row. Precisions are those of `with_fixed_precisions` and
        `with_learned_planes`. GddError if the images are too small for so many layers.
        """
        image_size, planes = check_pair("image_size", image_size), check_whole("planes", planes, 1)
        check_kind("atoms", atoms, (tuple, list))
        if not atoms:
            raise GddError("atoms: none given; the number of atoms of every layer is needed, such as (32, 64)")
        sizes = [propose_sizes(n, len(atoms)) for n in image_size]
        fits = min(len(pools) for n, (_, pools) in zip(image_size, sizes, strict=True) if n > 1 or max(image_size) == 1)
        if fits < len(atoms) - 1:
            raise GddError(
                f"atoms: {len(atoms)} layers given; images of {image_size[0]} x {image_size[1]} have room for"
                f" {fits + 1}, such as atoms={(*atoms[:fits], atoms[-1])}"
            )
        (heights, rows), (widths, cols) = sizes
        pools = [*zip(rows, cols, strict=True), None]
        layers = [LayerSpec(k, *size) for k, *size in zip(atoms, zip(heights, widths, strict=True), pools, strict=True)]
        return cls(tuple(layers), image_size, planes).with_fixed_precisions().with_learned_planes()

    def with_fixed_precisions(
        self, noise: float = 100.0, weights: float = 0.1, weights_above: float | None = None
    ) -> ModelSpec:
        """Fix the precisions that diverge if they are learned under flat priors (P15 in the errata).

        gamma_e and gamma_w of layer 1 are fixed at ``noise`` and ``weights``, and every gamma_d at the number of an
        atom's entries, so that an atom has about unit norm a priori. Upper layers learn one gamma_e for all images, and
        gamma_w unless ``weights_above`` fixes it. The defaults suit pixels of `PIXEL_RMS`.
        """
        layers = []
        for number, (layer, shape) in enumerate(zip(self.layers, self.shapes(), strict=True)):
            above = layer.gamma_w if weights_above is None else Precision(fixed=weights_above)
            layers.append(replace(
                layer, gamma_e=Precision() if number else Precision(fixed=noise),
                gamma_d=Precision(fixed=float(prod(shape.dictionary[1:]))),
                gamma_w=above if number else Precision(fixed=weights),
            ))
        return replace(self, layers=tuple(layers))

    def with_learned_planes(self) -> ModelSpec:
        """Learn gamma_d of each atom and plane above layer 1 under the paper's flat prior.

        Planes that an atom does not need then vanish. Under one fixed gamma_d for all planes they keep the noise of
        their prior, which refinement can only suppress by letting atoms of the layer below vanish.
        """
        bottom, *above = self.layers
        return replace(self, layers=(bottom, *(replace(layer, gamma_d=Precision((ATOM, PLANE))) for layer in above)))

    def as_printed(self) -> ModelSpec:
        """Return the same layers under the paper's flat priors, each precision with the axes of the paper's tables."""
        return replace(self, layers=tuple(LayerSpec(layer.atoms, layer.atom_size, layer.pool) for layer in self.layers))


def layer_shape(
    layer: LayerSpec, input_size: Size, planes: int, stride: Size = (1, 1), name: str = "layer"
) -> LayerShape:
    """Sizes of one layer over an input of ``planes`` planes; GddError naming the axis where an atom does not fit."""
    for axis, inner, outer in zip(("row", "col"), layer.atom_size, input_size, strict=True):
        if inner > outer:
            raise GddError(f"{name}: atom of size {inner} along axis '{axis}' is larger than its input of size {outer}")
    map_size = tuple(n - a + 1 for n, a in zip(input_size, layer.atom_size, strict=True))
    grid = block_grid(map_size, layer.block)
    return LayerShape(planes, input_size, layer.atoms, layer.atom_size, map_size, layer.block, grid, stride)


def propose_sizes(pixels: int, layers: int) -> tuple[list[int], list[int]]:
    """Sizes of atoms and pools along an axis, for as many of ``layers`` layers as fit; see `ModelSpec.for_images`."""
    if pixels == 1:
        return [1] * layers, [1] * (layers - 1)
    atoms, pools, size = [], [], pixels
    for above in range(layers - 1, 0, -1):
        atom = min(LARGEST_ATOM, size, max(3, round(COVERED_SHARE * size)))
        pool = max(2, round(((size - atom + 1) / TOP_BLOCKS) ** (1 / above)))
        blocks = ceil((size - atom + 1) / pool)
        if blocks < 2:
            break
        atoms, pools, size = [*atoms, atom], [*pools, pool], blocks
    top = ceil(0.8 * size) if pools else min(LARGEST_ATOM, size, max(3, round(COVERED_SHARE * size)))
    while projected_length([*atoms, top], pools) > pixels:  # the last block of a row may be ragged
        top -= 1
    return [*atoms, top], pools


def projected_length(atoms: Sequence[int], pools: Sequence[int]) -> int:
    """Pixels of a projected top atom along an axis, from the sizes of all layers' atoms and pools."""
    pixels, stride = atoms[0], 1
    for atom, pool in zip(atoms[1:], pools, strict=True):
        pixels, stride = pixels + (atom * pool - 1) * stride, stride * pool
    return pixels


@dataclass(frozen=True)
class Pruning:
    """Removal of rarely used atoms: every ``every`` sweeps of burn-in from ``start`` on, of those active in fewer
    blocks than ``share`` of the layer's mean number per atom.
    """

    start: int = 200
    every: int = 100
    share: float = 0.05

    def __post_init__(self) -> None:
        _set_fields(self, start=check_whole("start", self.start, 0), every=check_whole("every", self.every, 1))
        _set_fields(self, share=check_real("share", self.share, 0, LARGEST_COUNT))

    def is_due(self, sweep: int, burn_in: int) -> bool:
        """Whether atoms are pruned after this sweep."""
        return self.start <= sweep < burn_in and (sweep - self.start) % self.every == 0


@dataclass(frozen=True)
class ChainSpec:
    """Length, seed and start of a chain. Defaults are the paper's (Sec. 3).

    Attributes
    ----------
    burn_in, collect : sweeps discarded; sweeps among which the one of highest likelihood is kept
    seed : of every random number of the chain
    pruning : None keeps every atom
    start : "patches" of the data, or "random" atoms
    single_precision : arithmetic of the image pass; sums and shared draws are always double
    """

    burn_in: int = 1500
    collect: int = 500
    seed: int = 0
    pruning: Pruning | None = None
    start: str = "patches"
    single_precision: bool = True

    def __post_init__(self) -> None:
        (burn_in, collect), single = check_lengths(self.burn_in, self.collect), self.single_precision
        check_choice("start", self.start, ("patches", "random"))
        check_kind("pruning", self.pruning, (Pruning, type(None)))
        single = check_kind("single_precision", single, bool)
        _set_fields(self, burn_in=burn_in, collect=collect, seed=check_seed(self.seed), single_precision=single)

    @property
    def sweeps(self) -> int:
        """Total number of sweeps."""
        return self.burn_in + self.collect


@dataclass(frozen=True)
class RefinementSpec:
    """Settings of the joint model of all layers and its chain, besides the specs of its layers.

    The joint model ignores the layers' ``gamma_e``: its only noise is that of the data.

    Attributes
    ----------
    noise : precision of the data's noise; may vary by image. The default suits pixels of `PIXEL_RMS`: the noise has
        `NOISE_IN_SIGNALS` times their mean square, and top atoms become whole digits; with less noise they become
        copies of single atoms of layer 1. Chosen on digits; contrast-normalised pictures need less noise (book,
        model/depth). Learned under the printed flat prior it diverges (P15 in the errata)
    empty_blocks : whether a pooling block may be empty (the paper's footnote 1); by default none may
    dictionary_every : sweeps between two draws of a layer's dictionary, which take as long as the rest of a sweep; the
        layers take turns
    """

    noise: Precision = field(default_factory=lambda: Precision(fixed=1 / (NOISE_IN_SIGNALS * PIXEL_RMS**2)))
    empty_blocks: bool = False
    dictionary_every: int = 1

    def __post_init__(self) -> None:
        check_kind("noise", self.noise, Precision)
        self.noise.check("noise", (IMAGE,))
        _set_fields(self, empty_blocks=check_kind("empty_blocks", self.empty_blocks, bool))
        _set_fields(self, dictionary_every=check_whole("dictionary_every", self.dictionary_every, 1))

    def check_model(self, model: ModelSpec) -> None:
        """Refuse a model whose top layer is pooled, which has no joint form."""
        check_kind("model", model, ModelSpec)
        if model.layers[-1].pool is not None:
            raise GddError(f"layers: the top layer has pool {model.layers[-1].pool}; the joint model needs None")


def _set_fields(spec: object, **values) -> None:
    """Set validated values of a frozen spec during its construction: whole numbers as int, sizes as tuples."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)


#: the paper's models, with fixed precisions so that they do not diverge; `ModelSpec.as_printed` has the paper's priors
MNIST = ModelSpec((LayerSpec(32, (8, 8), (3, 3)), LayerSpec(160, (6, 6))), (28, 28)).with_fixed_precisions()
#: precisions for contrast-normalised images at `PIXEL_RMS`, much of which is texture that no atom explains
TEXTURED = {"noise": 13.0, "weights": 0.4, "weights_above": 0.04}
CALTECH101 = ModelSpec(
    (LayerSpec(8, (17, 17), (4, 4)), LayerSpec(12, (9, 9), (2, 2)), LayerSpec(16, (6, 6))), (128, 128)
).with_fixed_precisions(**TEXTURED).with_learned_planes()
FACES = ModelSpec(
    (LayerSpec(16, (17, 17), (4, 4)), LayerSpec(24, (9, 9), (2, 2)), LayerSpec(36, (6, 6))), (128, 128)
).with_fixed_precisions(**TEXTURED).with_learned_planes()
#: layer sizes from Sec. 4 (Fig. 4); the paper does not give the numbers of atoms, so those of FACES are used
FACES_INTERPOLATION = ModelSpec(
    (LayerSpec(16, (14, 14), (3, 3)), LayerSpec(24, (13, 13))), (128, 128)
).with_fixed_precisions(**TEXTURED).with_learned_planes()
