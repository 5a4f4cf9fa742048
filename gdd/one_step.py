"""Features for a classifier: atoms of layer 1, or of two layers, learned without labels and read in one step.

There is no chain once the atoms are learned, and no random number: an image has the same features at every call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from gdd import plot, results
from gdd.base.axes import BLOCKS, DICTIONARY, IMAGES, PLANE
from gdd.base.checks import (
    GddError,
    check_block,
    check_kind,
    check_pair,
    check_precision,
    check_real,
    check_whole,
    shown,
)
from gdd.base.files import user_path
from gdd.inference.block_magnitudes import block_magnitudes
from gdd.inference.contrast import filled_in, prepare
from gdd.inference.deconvolution import along_images, check_atoms
from gdd.inference.deformations import Deformations, Whitening, check_differ, learn_whitening
from gdd.layout import Scale, find_layout, scaled_data
from gdd.model.pooling import block_grid
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, Size, propose_sizes
from gdd.model.state import LayerData
from gdd.sampler.pretrain import pretrain
from gdd.transformer import Bar, ImageTransformer, as_tuples, parameters_of, sweeps_of

#: atoms whose norm is below this share of the largest one explain nothing: draws from nearly the prior
LEAST_NORM = 0.25
#: width of the blur as a share of an atom's side: three pixels for atoms of eight; widest blur in pixels
BLUR, WIDEST_BLUR = 3 / 8, 2**15 - 1
#: images that are read at once
READ_BATCH = 250
#: dictionaries that this package brings
SHIPPED = Path(__file__).parent / "pretrained"
#: smallest unit, for features that do not vary, as where all images are alike
LEAST_UNIT = 1e-12
#: atoms of the four dictionaries of `OneStepFeatures.digits`, chosen on training digits (book, mnist/best)
DIGIT_SIZES = (8, 8), (8, 8), (6, 6), (11, 11)


@dataclass(frozen=True)
class SecondLayer:
    """A layer on the maps of the first.

    Attributes
    ----------
    atoms : at the start
    size, pool : (row, col) of an atom and of a block, in blocks of layer 1
    noise_precision, weight_precision : held, in learning and in use
    """

    atoms: int = 256
    size: Size = (6, 6)
    pool: Size = (2, 2)
    noise_precision: float = 10.0
    weight_precision: float = 0.1

    def __post_init__(self) -> None:
        check_whole("second, atoms", self.atoms, 1)
        for name in ("size", "pool"):  # lists of a file
            object.__setattr__(self, name, check_pair(f"second, {name}", getattr(self, name)))
        for name in ("noise_precision", "weight_precision"):
            check_precision(f"second, {name}", getattr(self, name))


@dataclass(frozen=True)
class OneStepSettings:
    """How images are prepared, learned from, and read.

    Attributes
    ----------
    pool : (row, col) of a block; None: about seven blocks a side
    margin : places by which a block reaches into its neighbours on each side
    second : a layer on the maps of the first, with features of its own; needs ``sizes`` of one
    blur : pixels; structure wider than this, such as shading and background, is subtracted from each image. 0: none;
        None: three eighths of an atom
    local_contrast : whether to normalise contrast within 9 x 9 pixels first, for photographs with light and shade; then
        the blur is subtracted in learning alone, as for the book's record of Caltech 101
    rescale : whether to subtract medians and divide by one number, see ``scale_``; the precisions need it
    noise_precision, weight_precision : held, in learning and in use
    learn_from : maximum number of training images, drawn from those of ``fit``
    """

    pool: Size | None = None
    margin: int = 1
    second: SecondLayer | None = None
    blur: float | None = None
    local_contrast: bool = False
    rescale: bool = True
    noise_precision: float = 100.0
    weight_precision: float = 0.1
    learn_from: int = 500

    def __post_init__(self) -> None:
        checked = {
            "pool": self.pool if self.pool is None else check_block("pool", self.pool),
            "margin": check_whole("margin", self.margin, 0),
            "second": check_kind("second", self.second, (SecondLayer, type(None))),
            "blur": self.blur if self.blur is None else check_real("blur", self.blur, 0, WIDEST_BLUR, "pixels"),
            "local_contrast": check_kind("local_contrast", self.local_contrast, bool),
            "rescale": check_kind("rescale", self.rescale, bool),
            "noise_precision": check_precision("noise_precision", self.noise_precision),
            "weight_precision": check_precision("weight_precision", self.weight_precision),
            "learn_from": check_whole("learn_from", self.learn_from, 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


class LearnedLayer(NamedTuple):
    """A second layer that was learned."""

    atoms: np.ndarray  # (atom, plane, atom_row, atom_col); its planes are the atoms of layer 1
    centre: np.ndarray  # (plane, 1, 1): mean of layer 1's maps over images and places
    scale: float

    def standardise(self, maps: np.ndarray) -> np.ndarray:
        """Maps of layer 1 (image, atom, row, col) as layer 2 sees them."""
        return (maps - self.centre) * self.scale


class OneStepFeatures(ImageTransformer):
    """Features of images for a classifier: how strongly each atom answers in each part of an image.

    ``fit`` learns small dictionaries of atoms from images without labels, by Gibbs sampling of layer 1 of the model of
    `gdd.DeepDeconvolution`. ``transform`` reads an image in one step: the feature of an atom and a block of places is
    the expected magnitude of the block's weight with all other weights zero, see
    `gdd.inference.block_magnitudes.one_step_features`. With ``whitening``, directions of feature space count less, the
    more small deformations of an image move it along them. For digits see `OneStepFeatures.digits`, for photographs
    `OneStepFeatures.photos`.

    Parameters
    ----------
    atoms : initial number per dictionary, of which those that explain nothing are dropped; or the dictionaries
        themselves, (atom, plane, atom_row, atom_col) each: then ``sweeps`` do not count, and ``sizes`` are theirs
    sizes : of the atoms, (row, col) for each dictionary; None: one, two sevenths of an image wide, at most 17 pixels
    regions : None: each block is a feature. Such as (1, 2, 4): a `pyramid` of the maps, where it matters less where in
        a picture something is
    whitening : how far images are deformed to learn what not to count; True: as `Deformations` says; False: features
        are as they are, which costs less
    settings : pooling blocks, a second layer, blur and contrast, precisions; None: as `OneStepSettings` says
    sweeps : of the chain that learns a dictionary, (burn-in, collected)
    image_size, checkpoint, random_state, n_jobs, verbose : as of `gdd.DeepDeconvolution`; ``transform`` uses no random
        number

    Attributes
    ----------
    dictionaries_ : (atom, plane, atom_row, atom_col) each, atoms of unit norm
    second_ : `LearnedLayer` or None
    units_ : standard deviation of the features of each dictionary, by which they are divided; 1 with ``regions`` or a
        second layer
    whitening_ : `gdd.inference.deformations.Whitening`, or None
    scale_, layout_, seed_, n_features_in_ : as of `gdd.DeepDeconvolution`
    settings_, regions_ : that images are read by, with the block and the blur that were chosen

    Notes
    -----
    Images as for `gdd.DeepDeconvolution`; the features are those of the pixels that are not NaN. They depend on the
    image alone, to the bit: not on how many others there are, nor on threads.

    *Source:* layer 1 of Pu, Yuan & Carin 2015, Sec. 2.1 and 2.2.
    *Departs:* no chain for new images; high-pass images, precisions held (P15); atoms of unit norm, as norms say how
    often an atom is used and not what it looks like; whitening and pyramid are not in the paper.
    *Checked:* tests/test_one_step.py.
    """

    def __init__(
        self, atoms: int | Sequence = 32, *, sizes: Sequence[Size] | None = None,
        regions: tuple[int, ...] | None = None, whitening: Deformations | bool = True,
        settings: OneStepSettings | None = None, sweeps: tuple[int, int] = (60, 20), image_size: Size | None = None,
        checkpoint: str | Path | None = None, random_state=0, n_jobs: int | None = None, verbose: bool = True,
    ):
        self.atoms = atoms
        self.sizes = sizes
        self.regions = regions
        self.whitening = whitening
        self.settings = settings
        self.sweeps = sweeps
        self.image_size = image_size
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # ---- settings that work

    @classmethod
    def digits(cls, pretrained: bool = False, **changes) -> OneStepFeatures:
        """Four whitened dictionaries, as for MNIST in the book; handwritten digits and letters, (28, 28).

        With ``pretrained`` the dictionaries are those that this package brings, learned from 1,000 training digits of
        MNIST without their labels. They read digits (image, 28, 28), white on black from 0 to 1, without a fit; ``fit``
        learns their whitening, which has millions of numbers, within seconds from digits in any units and of any size.

        ``changes`` : other parameters, or fields of `OneStepSettings`; with ``sizes=((8, 8),)`` one dictionary, which
        does as well with few labels and learns in a fifth of the time. With ``pretrained`` none of how dictionaries are
        learned (GddError); where others than of whitening change, images are read after ``fit`` alone
        """
        settings = OneStepSettings(pool=(3, 3), blur=3.0)
        if not pretrained:
            given = isinstance(changes.get("atoms"), tuple | list)
            return cls._preset(settings, {} if given else {"sizes": DIGIT_SIZES}, changes)
        if learning := changes.keys() & {"atoms", "sizes", "sweeps"}:
            raise GddError(f"{min(learning)}: given with pretrained=True, which brings dictionaries; leave one out")
        shipped = restored(results.read(SHIPPED / "digits.nc"))
        model = cls._preset(settings, {"atoms": shipped.dictionaries_}, changes)
        if changes.keys() <= {"checkpoint", "learn_from", "n_jobs", "random_state", "verbose", "whitening"}:
            model.__dict__ |= {name: value for name, value in vars(shipped).items() if name.endswith("_")}
        return model

    @classmethod
    def photos(cls, **changes) -> OneStepFeatures:
        """Two layers and a pyramid, as for Caltech 101 in the book; photographs of about 128 x 128 pixels.

        The book reads each photograph at a second size too (`for_size`). ``changes`` : other parameters, or fields of
        `OneStepSettings`
        """
        settings = OneStepSettings(
            (4, 4), second=SecondLayer(1024), blur=3.0, local_contrast=True, noise_precision=25.0, weight_precision=0.3,
            learn_from=101,
        )
        asked = {
            "atoms": 64, "sizes": ((13, 13),), "regions": (1, 2, 3, 4, 6), "whitening": False, "sweeps": (40, 5),
        }
        return cls._preset(settings, asked, changes)

    @classmethod
    def _preset(cls, settings: OneStepSettings, parameters: dict, changes: dict) -> OneStepFeatures:
        """Features of these settings and parameters, but for what changes."""
        names, changes = {field.name for field in fields(OneStepSettings)} & changes.keys(), dict(changes)
        settings = replace(settings, **{name: changes.pop(name) for name in names})
        return cls(**{"settings": settings} | parameters | changes)

    # ---- learning

    def _learn(self, X) -> None:
        self._forget()
        self.settings_ = check_kind("settings", self.settings, (OneStepSettings, type(None))) or OneStepSettings()
        self.regions_ = self._regions()
        array = self._checked(X, reset=True)
        self.layout_ = find_layout(array, self.image_size, labelled=isinstance(X, xr.DataArray))
        images = self.layout_.arrange(array)
        self.seed_ = self._seed()
        if len(images) > self.settings_.learn_from:
            order = np.random.Generator(np.random.Philox(self.seed_)).permutation(len(images))
            images = images[np.sort(order[: self.settings_.learn_from])]
        unscaled = None if self.settings_.rescale else Scale(np.zeros(self.layout_.planes), 1.0)
        (pixels, mask, _), self.scale_ = scaled_data(images, unscaled)
        self.n_features_in_ = prod(array.shape[1:])
        known = self._known(pixels)
        sizes = [one.shape[2:] for one in known] if known else self._sizes()
        self._complete(sizes)
        models = [self._layer(size) for size in sizes]
        if self.whitening:
            check_differ(pixels)
        with self._threads(), self._unfinished(LayerData(pixels, mask)) as folder:
            sharp = self._prepared(pixels, mask, None if known else self.settings_.blur)
            if not sharp.any():
                raise GddError("images: nothing is left of them without their blur; give blur=0, local_contrast=False")
            self.dictionaries_ = known or self._learn_dictionaries(sharp, mask, models, folder)
            self.units_, self.second_, self.whitening_ = [1.0] * len(models), None, None
            if self.settings_.second is not None:
                self.second_ = self._learn_second(self._maps(self._prepared(pixels, mask), mask)[0], folder)
            elif self.regions_ is None:
                maps = self._maps(self._prepared(pixels, mask), mask)
                self.units_ = [max(float(one.reshape(len(one), -1).std()), LEAST_UNIT) for one in maps]
            if self.whitening:
                self.whitening_ = self._learn_whitening(pixels, mask)

    def _learn_dictionaries(
        self, images: np.ndarray, mask: np.ndarray | None, models: list[ModelSpec], folder: Path | None
    ) -> list[xr.DataArray]:
        """Dictionaries of these models; equal sizes have other seeds."""
        chain, dictionaries, sizes = ChainSpec(*sweeps_of("sweeps", self.sweeps), self.seed_), [], []
        with Bar(chain.sweeps * len(models), self.verbose) as bar:
            for model in models:
                rows, cols = size = model.layers[0].atom_size
                again = sizes.count(size)
                this, place = replace(chain, seed=self.seed_ + again), folder and folder / f"{rows}x{cols}-{again}"
                dictionaries.append(learn_atoms(images, model, this, mask, place, bar))
                sizes.append(size)
        return dictionaries

    def _learn_second(self, maps: np.ndarray, folder: Path | None) -> LearnedLayer:
        """Layer 2 from maps of layer 1."""
        second, chain = self.settings_.second, ChainSpec(*sweeps_of("sweeps", self.sweeps), self.seed_)
        centre = maps.mean(axis=(0, 2, 3))[:, None, None]
        layer = LearnedLayer(np.zeros(0), centre, float(1 / max(3 * (maps - centre).std(), LEAST_UNIT)))
        model = one_layer(second.atoms, second.size, second, maps.shape[1:])
        with Bar(chain.sweeps, self.verbose) as bar:
            atoms = learn_atoms(layer.standardise(maps), model, chain, None, folder and folder / "second", bar)
        return layer._replace(atoms=atoms.values)

    def _learn_whitening(self, pixels: np.ndarray, mask: np.ndarray | None) -> Whitening:
        """Whitening from deformed images; missing pixels are filled in first."""
        filled = xr.DataArray(pixels if mask is None else filled_in(pixels, mask), dims=IMAGES)
        deformations = self.whitening if isinstance(self.whitening, Deformations) else Deformations()
        count = len(deformations.transforms(pixels.shape[2]))
        with Bar(count, self.verbose, "deformations") as bar:
            return learn_whitening(filled, lambda part: self._plain(part.values), deformations, bar.step)

    def _layer(self, size: Size) -> ModelSpec:
        """Model that learns a dictionary of this size."""
        atoms = self.atoms if isinstance(self.atoms, Integral) else 1  # of dictionaries that are given none is learned
        return one_layer(atoms, size, self.settings_, (self.layout_.planes, *self.layout_.size))

    def _sizes(self) -> list[Size]:
        if self.sizes is None:
            return [proposed(self.layout_.size)[0]]
        pair, several = (tuple, list, np.ndarray), isinstance(self.sizes, tuple | list)
        if not several or not self.sizes or not all(isinstance(size, pair) for size in self.sizes):
            what = "(row, col) of the atoms of each dictionary is needed, such as ((8, 8),), or None"
            raise GddError(f"sizes: {shown(self.sizes)} given; {what}")
        return [check_pair("sizes", size) for size in self.sizes]

    def _known(self, pixels: np.ndarray) -> list[xr.DataArray]:
        """Dictionaries that are given, checked; none if they are to be learned."""
        if not isinstance(self.atoms, tuple | list):
            check_whole("atoms", self.atoms, 1)
            return []
        if not self.atoms:
            raise GddError("atoms: no dictionary given; a number of atoms, or at least one dictionary, is needed")
        dictionaries = [check_atoms(one, pixels, "atoms") for one in self.atoms]
        sizes = [one.shape[2:] for one in dictionaries]
        if self.sizes is not None and self._sizes() != sizes:
            raise GddError(f"sizes: {shown(self.sizes)} given, and dictionaries of {shown(sizes)}; leave one out")
        return [xr.DataArray(one.astype(np.float32), dims=DICTIONARY) for one in dictionaries]

    def _regions(self) -> tuple[int, ...] | None:
        if self.regions is None:
            return None
        if not isinstance(self.regions, tuple | list) or not self.regions:
            what = "parts along each side are needed, such as (1, 2, 4), or None"
            raise GddError(f"regions: {shown(self.regions)} given; {what}")
        return tuple(check_whole("regions", number, 1) for number in self.regions)

    def _complete(self, sizes: list[Size]) -> None:
        """Check what does not depend on what is learned; choose the block and the blur where none is given."""
        size, settings = self.layout_.size, self.settings_
        self.settings_ = settings = replace(
            settings, pool=settings.pool or check_block("pool", proposed(size)[1]),
            blur=BLUR * max(sizes[0]) if settings.blur is None else settings.blur,
        )
        sweeps_of("sweeps", self.sweeps)
        check_kind("whitening", self.whitening, (Deformations, bool))
        self._folder()  # refused before any work
        if settings.second is not None:
            if len(sizes) > 1:
                what = "a second layer needs one, such as sizes=((8, 8),), or second=None"
                raise GddError(f"second: given with several dictionaries; {what}")
            grid = grid_of(size, sizes[0], settings.pool)
            if any(n < a for n, a in zip(grid, settings.second.size, strict=True)):
                raise GddError(
                    f"second: atoms of {settings.second.size} blocks; images of {size} have {grid}. Give larger images,"
                    " a smaller SecondLayer(size=), or second=None"
                )

    # ---- reading

    def transform(self, X) -> np.ndarray:
        """Features of images, (image, feature), in single precision; see `get_feature_names_out`."""
        check_is_fitted(self)
        (pixels, mask, _), batches = self._scaled(self._checked(X, reset=False)), []
        with self._threads(), Bar(len(pixels), self.verbose, "images") as bar:
            for low in range(0, len(pixels), READ_BATCH):
                batch = slice(low, low + READ_BATCH)
                features = self._plain(pixels[batch], None if mask is None else mask[batch])
                batches.append(features if self.whitening_ is None else self.whitening_.apply(features))
                bar.step(len(features))
        return np.concatenate(batches)

    def maps(self, X) -> list[xr.DataArray]:
        """Expected magnitudes of the blocks under each dictionary, (image, atom, block_row, block_col) each.

        As features have them before they are pooled over regions or whitened; the last is that of a second layer.
        Coordinates of labelled images along ``image`` stay.
        """
        check_is_fitted(self)
        (pixels, mask, _), coords = self._scaled(self._checked(X, reset=False)), along_images(X)
        with self._threads():
            maps = self._maps(self._prepared(pixels, mask), mask)
        return [xr.DataArray(one, coords, BLOCKS, "maps") for one in maps]

    def for_size(self, image_size: Size, regions: tuple[int, ...] | None = None) -> OneStepFeatures:
        """Return the same atoms for images of another size, fitted, such as to read pictures at several sizes.

        ``regions`` : None: those of the fit. Whitened features have no other size.
        """
        check_is_fitted(self)
        if self.whitening_ is not None:
            raise GddError("image_size: the features are whitened, which holds for one size; fit with whitening=False")
        other = copy(self).set_params(regions=self.regions_ if regions is None else regions, settings=self.settings_)
        other.regions_ = other._regions()
        other.layout_ = self.layout_._replace(size=check_pair("image_size", image_size))
        other.n_features_in_ = prod(other.layout_.shape)
        sizes = [one.shape[2:] for one in self.dictionaries_]
        other._complete(sizes)
        for size in sizes:
            other._layer(size)  # refuses images that are smaller
        return other

    def _prepared(self, pixels: np.ndarray, observed: np.ndarray | None, blur: float | None = None) -> np.ndarray:
        """Images as the atoms see them; ``blur`` : None: that of reading."""
        local = self.settings_.local_contrast
        reading = 0.0 if local else self.settings_.blur
        return prepare(pixels, observed, reading if blur is None else blur, local)

    def _maps(self, images: np.ndarray, observed: np.ndarray | None) -> list[np.ndarray]:
        """Answers of every dictionary to prepared images, (image, atom, block_row, block_col) each."""

        def magnitudes(images, atoms, layer, margin, observed=None):
            blocks, precisions = (*layer.pool, margin), (layer.noise_precision, layer.weight_precision)
            return block_magnitudes(images, atoms, blocks, *precisions, observed)

        settings = self.settings_
        maps = [
            magnitudes(images, one.values, settings, settings.margin, observed) / np.float32(unit)
            for one, unit in zip(self.dictionaries_, self.units_, strict=True)
        ]
        if settings.second is None and self.regions_ is None:
            return maps
        maps = [normalise_by_norm(one) for one in maps]
        if self.second_ is not None:
            below = self.second_.standardise(maps[0])
            maps.append(normalise_by_norm(magnitudes(below, self.second_.atoms, settings.second, 0)))
        return maps

    def _plain(self, pixels: np.ndarray, observed: np.ndarray | None = None) -> np.ndarray:
        """Features that are not whitened of scaled pixels (image, plane, row, col)."""
        maps = self._maps(self._prepared(pixels, observed), observed)
        parts = [one.reshape(len(one), -1) if self.regions_ is None else pyramid(one, self.regions_) for one in maps]
        return np.concatenate(parts, axis=1)

    # ---- what was learned

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the features: dictionary, atom, and the place of the block or region; of whitened ones a number."""
        check_is_fitted(self)
        names, regions = [], self.regions_
        for number, (atoms, grid) in enumerate(self._grids()):
            places = [("block", grid)] if regions is None else [
                (f"level{level}", tuple(min(level, n) for n in grid)) for level in regions
            ]
            for word, sizes in places:
                names += [f"dictionary{number}_atom{k}_{word}_row{i}_col{j}" for k, i, j in np.ndindex(atoms, *sizes)]
        if self.whitening_ is not None:
            names = [f"whitened{number}" for number in range(len(names))]
        return np.array(names, object)

    def _grids(self) -> list[tuple[int, Size]]:
        """Atoms, and rows and columns of blocks, of every dictionary."""
        size, pool = self.layout_.size, self.settings_.pool
        grids = [(len(one), grid_of(size, one.shape[2:], pool)) for one in self.dictionaries_]
        if self.second_ is not None:
            atoms = self.second_.atoms
            grids.append((len(atoms), grid_of(grids[0][1], atoms.shape[2:], self.settings_.second.pool)))
        return grids

    def plot_atoms(self, dictionary: int = 0, ax: Axes | None = None) -> Axes:
        """Atoms of a dictionary; see `gdd.plot.plot_atoms`."""
        check_is_fitted(self)
        number = check_whole("dictionary", dictionary, 0, len(self.dictionaries_) - 1)
        return plot.plot_atoms(self.dictionaries_[number], ax)

    def plot_maps(self, image, dictionary: int = 0, count: int = 8, ax: Axes | None = None) -> Axes:
        """One image, and the maps of the atoms whose answers vary most over it; see `gdd.plot.plot_maps`."""
        check_is_fitted(self)
        number = check_whole("dictionary", dictionary, 0, len(self._grids()) - 1)
        array = self._one_image(image)
        maps = self.maps(array)[number].values[0]
        order = np.argsort(-maps.var(axis=(1, 2)), kind="stable")[: check_whole("count", count, 1)]
        return plot.plot_maps(self.layout_.arrange(array)[0], maps[order], order, ax)

    def to_dataset(self) -> xr.Dataset:
        """Everything learned as labelled arrays: ``dictionary_1``, ``dictionary_2`` ..., ``second``, ``whitening``."""
        check_is_fitted(self)
        arrays = {
            f"dictionary_{n}": ((f"atom_{n}", PLANE, f"atom_row_{n}", f"atom_col_{n}"), one.values)
            for n, one in enumerate(self.dictionaries_, 1)
        }
        if self.second_ is not None:
            arrays["second"] = ("atom_second", "atom_1", "second_row", "second_col"), self.second_.atoms
            arrays["second_centre"] = "atom_1", self.second_.centre[:, 0, 0]
        if self.whitening_ is not None:
            arrays["whitening"] = ("feature", "component"), self.whitening_.axes
            arrays["feature_mean"] = "feature", self.whitening_.centre
        return xr.Dataset(arrays)

    def save(self, path: str | Path) -> None:
        """Write what was learned to a NetCDF file, making its folder; `gdd.load` reads it. The images are not in it."""
        check_is_fitted(self)
        place = user_path("path", path)
        attrs = self._attributes(
            atoms=self.atoms if isinstance(self.atoms, Integral) else None,
            settings=self.settings and asdict(self.settings),
            whitening=asdict(self.whitening) if isinstance(self.whitening, Deformations) else self.whitening,
        )
        attrs |= {
            "estimator": type(self).__name__, "units": self.units_, "regions": json.dumps(self.regions_),
            "settings": json.dumps(asdict(self.settings_)),
            "second_scale": 0.0 if self.second_ is None else self.second_.scale,
        }
        results.write(self.to_dataset().assign_attrs(attrs), place)


def restored(data: xr.Dataset) -> OneStepFeatures:
    """Transformer of what `OneStepFeatures.save` has written."""
    attrs, given = data.attrs, parameters_of(data.attrs)
    units = np.atleast_1d(attrs["units"]).tolist()
    dictionaries = [xr.DataArray(data[f"dictionary_{n}"].values, dims=DICTIONARY) for n in range(1, len(units) + 1)]
    given |= {
        "atoms": dictionaries if given["atoms"] is None else given["atoms"],
        "settings": given["settings"] and settings_from(given["settings"]),
        "whitening": Deformations(**wide) if isinstance(wide := given["whitening"], dict) else wide,
    }
    model = OneStepFeatures._from_attributes(attrs, given)
    model.dictionaries_, model.units_ = dictionaries, units
    model.settings_ = settings_from(json.loads(attrs["settings"]))
    model.regions_ = as_tuples(json.loads(attrs["regions"]))
    model.second_ = LearnedLayer(
        data.second.values, data.second_centre.values[:, None, None], float(attrs["second_scale"])
    ) if "second" in data else None
    model.whitening_ = Whitening(data.feature_mean.values, data.whitening.values) if "whitening" in data else None
    return model


def settings_from(values: dict) -> OneStepSettings:
    """Settings of what `dataclasses.asdict` made of them."""
    return OneStepSettings(**values | {"second": values["second"] and SecondLayer(**values["second"])})


# ---- the parts, each a function


def proposed(size: Size) -> tuple[Size, Size]:
    """Atoms and blocks (row, col) for images of this size; an axis that is too short has no blocks."""
    along = [propose_sizes(n, 2) for n in size]
    return tuple(atoms[0] for atoms, _ in along), tuple(pools[0] if pools else 1 for _, pools in along)


def grid_of(size: Size, atom: Size, pool: Size) -> Size:
    """Rows and columns of the blocks of an atom's places in images of this size."""
    return block_grid(tuple(n - a + 1 for n, a in zip(size, atom, strict=True)), pool)


def one_layer(
    atoms: int, size: Size, settings: OneStepSettings | SecondLayer, shape: tuple[int, int, int]
) -> ModelSpec:
    """Model of one layer, pool and precisions those of ``settings``, for images of ``shape`` (plane, row, col)."""
    held = settings.noise_precision, float(shape[0] * prod(size)), settings.weight_precision
    layer = LayerSpec(atoms, size, settings.pool, *(Precision(fixed=value) for value in held))
    return ModelSpec((layer,), shape[1:], shape[0])  # refuses atoms larger than the images


def learn_atoms(
    images: np.ndarray, model: ModelSpec, chain: ChainSpec, mask: np.ndarray | None = None,
    folder: Path | None = None, progress=None,
) -> xr.DataArray:
    """Pretrain a model of `one_layer`, and keep the atoms that explain something, at unit norm.

    images : (image, plane, row, col), prepared
    chain, mask, folder, progress : see `gdd.pretrain`

    Returns (atom, plane, atom_row, atom_col), and as an attribute the norms of all atoms before scaling. Source,
    Departs, Checked: see `OneStepFeatures`.
    """
    (fitted,) = pretrain(images, model, chain, mask, folder, progress).layers
    atoms = fitted.state.shared.dictionary
    norms = np.sqrt((atoms.astype(float) ** 2).sum(axis=(1, 2, 3)))
    used = norms >= LEAST_NORM * norms.max()
    unit = (atoms[used] / norms[used, None, None, None]).astype(np.float32)
    return xr.DataArray(unit, dims=DICTIONARY, name="atoms", attrs={"norms": norms})


def normalise_by_norm(maps: np.ndarray) -> np.ndarray:
    """Maps (image, atom, row, col), at each block over their norm there, which is kept above its root mean square."""
    energy = (maps**2).sum(axis=1, keepdims=True)
    return maps / np.sqrt(energy + energy.mean(axis=(2, 3), keepdims=True))


def pyramid(maps: np.ndarray, levels: Sequence[int]) -> np.ndarray:
    """Square root of each map's maximum in each region; each level has equal norm, the whole norm 1: (image, feature).

    Maps (image, atom, row, col), over the norm of all maps at each block; ``levels`` : regions along each side, such as
    (1, 2, 4) for the whole image, 2 x 2 and 4 x 4 parts
    """
    features = []
    for level in levels:
        starts = [[part[0] for part in np.array_split(np.arange(n), min(level, n))] for n in maps.shape[2:]]
        largest = np.maximum.reduceat(np.maximum.reduceat(maps, starts[0], axis=2), starts[1], axis=3)
        features.append(normalize(np.sqrt(largest.reshape(len(maps), -1))))
    return np.concatenate(features, axis=1) * maps.dtype.type(len(features) ** -0.5)
