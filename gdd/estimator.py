"""The library's face: a scikit-learn transformer that learns a model from images as people have them.

Each of its steps can also be called alone, as `gdd.pretrain`, `gdd.refine`, `gdd.project` and `gdd.infer`. It adds the
order of the steps, the axes and the scale of the images, and saving to a file.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from math import prod
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from sklearn.utils.validation import check_array, check_is_fitted

from gdd import one_step, plot, results
from gdd.base import files
from gdd.base.axes import COL, DICTIONARY, DRAW, FEATURE, IMAGE, PLANE, ROW
from gdd.base.checks import (
    LEAST_CONTRAST,
    GddError,
    as_finite,
    check_choice,
    check_kind,
    check_memory,
    check_seed,
    check_whole,
    warn_of_scale,
)
from gdd.base.files import user_path
from gdd.inference.deconvolution import along_images, infer
from gdd.inference.generation import resample_top
from gdd.layout import Scale, as_images, find_layout, from_means, scaled_data
from gdd.model.pooling import unpool
from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal
from gdd.one_step import OneStepFeatures
from gdd.projection import project, render_projected
from gdd.results import Trained
from gdd.sampler.pretrain import Pretrained, check_fits, check_start, pretrain_layers, training_digest, validate_data
from gdd.sampler.refine import Refined, refine_layers
from gdd.sampler.sweep import passes_on
from gdd.transformer import Bar, ImageTransformer, parameters_of, sweeps_of

#: parameters that files of earlier versions name, and that change nothing of a model of one chain
RETIRED = ("infer_chains", "n_chains", "warm_start")


class DeepDeconvolution(ImageTransformer):
    r"""Atoms learned from images without labels, and where in an image each is used.

    ``fit`` learns every layer's atoms by Gibbs sampling, refines all layers together if asked, and projects the top
    atoms to the pixels. ``transform`` explains new images by these, in one deconvolution: its features are the
    posterior mean of the maps S, one number for each atom and place. ``inverse_transform`` adds the atoms up again.

    Its features are for looking at: the parts of an image, what is missing in it, pictures rebuilt or drawn. A feature
    is the mean of a chain, and another seed gives another. To classify images use `gdd.OneStepFeatures`, whose features
    cost far less and tell classes apart better (book, your-images).

    Parameters
    ----------
    model : sizes and priors of the layers, such as `gdd.MNIST`; None: `ModelSpec.for_images` proposes one
    atoms : numbers of atoms of the proposed model's layers, bottom first; not used if a model is given
    image_size : (row, col) of grey images that are given flat; None: signals of one row
    pretrain : sweeps of each layer's chain, (burn-in, collected)
    refine : sweeps of the chain of all layers, (burn-in, collected); None: no refinement, which costs many times more
    infer : sweeps for new images, (burn-in, averaged)
    checkpoint : folder in which unfinished chains are kept; the same fit, started again, goes on from there, and other
        fits begin beside it
    random_state : of every random number
    n_jobs : threads; None: as many as there are cores. It changes no result
    device : "cpu", or "cuda" to learn and to explain images on an NVIDIA graphics processor, with the same chains to
        rounding; draws of atoms and projection stay on the processor
    verbose : whether to show progress, in a notebook or where there is a terminal

    Attributes
    ----------
    model_ : ModelSpec
    scale_ : `Scale`, the median that is subtracted from each plane and the number that all are divided by
    layout_ : axes and sizes of the images
    chain_ : the trained chain, `Pretrained` or `Refined`
    atoms_ : (atom, plane, atom_row, atom_col), its top atoms in the image plane
    traces_ : by stage, numbers of every sweep, dims (chain, draw); the last stage kept the last ``kept_`` sweeps
    coords_ : coordinates of the training images, such as their labels, by name; ``image`` numbers them if nothing else
    seed_ : of the chain
    n_features_in_ : numbers per image

    Notes
    -----
    Images are arrays (image, row, col), (image, plane, row, col), (image, row, col, plane), or flat (image, feature),
    always with an axis of images. A last axis of 1, 3 or 4 is colour; any other number of planes stands second. Where
    the shape does not tell, a DataArray with the axes image, plane, row and col does. NaN is a missing pixel. New
    images must be in the units of those of ``fit``, such as 0 to 255. The features of an image depend on that image
    alone: all images share one stream of random numbers.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2 to 2.4.
    *Departs:* precisions are held (P15); posterior means in place of one sample.
    *Checked:* tests/test_estimator.py.
    """

    def __init__(
        self, model: ModelSpec | None = None, *, atoms: tuple[int, ...] = (32, 64),
        image_size: tuple[int, int] | None = None, pretrain: tuple[int, int] = (60, 20),
        refine: tuple[int, int] | None = None, infer: tuple[int, int] = (60, 20),
        checkpoint: str | Path | None = None, random_state=0, n_jobs: int | None = None, device: str = "cpu",
        verbose: bool = True,
    ):
        self.model = model
        self.atoms = atoms
        self.image_size = image_size
        self.pretrain = pretrain
        self.refine = refine
        self.infer = infer
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    # ---- learning

    def fit(self, X, y=None) -> DeepDeconvolution:
        """Learn from images; ``y`` is ignored. See `gdd.transformer.ImageTransformer.fit`."""
        super().fit(X)
        warn_of_idle_atoms(self.chain_)
        return self

    def _learn(self, X) -> None:
        self._forget()
        pretrain, _ = (sweeps_of(name, getattr(self, name)) for name in ("pretrain", "infer"))
        refine = None if self.refine is None else sweeps_of("refine", self.refine)
        self._folder()  # refused before any work
        array = self._checked(X, reset=True)
        self.layout_ = find_layout(array, self.image_size, self._model_size(), isinstance(X, xr.DataArray))
        data, self.scale_ = scaled_data(self.layout_.arrange(array), None)
        self.model_ = self.model or ModelSpec.for_images(self.layout_.size, self.layout_.planes, self.atoms)
        check_projection(self.model_)
        self.n_features_in_, self.coords_, self.seed_ = prod(array.shape[1:]), coords_of(X, len(array)), self._seed()
        noise = self.model_.layers[0].gamma_e
        data = validate_data(data.images, self.model_, noise, ChainSpec(), data.mask)
        warn_of_scale(data.images, noise.fixed)
        if refine is not None:
            RefinementSpec().check_model(self.model_)
            passes_on(self.device, self.model_.shapes(), data, joint=True)  # refused before any work
        with self._threads():
            with self._unfinished(data) as folder:
                chain = ChainSpec(*pretrain, self.seed_)
                with Bar(chain.sweeps * len(self.model_.layers), self.verbose) as bar:
                    trained = pretrain_layers(data, self.model_, chain, folder, bar, device=self.device)
                self.traces_ = traces_of(trained)
                if refine is not None:
                    chain = ChainSpec(*refine, self.seed_)
                    with Bar(chain.sweeps, self.verbose) as bar:
                        trained = refine_layers(
                            data, trained.model, chain, RefinementSpec(), trained, folder, bar, self.device
                        )
                    self.traces_ |= traces_of(trained)
            self.chain_, self.kept_, self.atoms_ = trained, chain.collect, project(trained)

    @classmethod
    def from_chain(cls, trained: Trained, images: np.ndarray | xr.DataArray, chain: ChainSpec) -> DeepDeconvolution:
        """Model of a chain that `gdd.pretrain` or `gdd.refine` has run, in the units of its images.

        Parameters
        ----------
        trained : what either of them returned
        images : (image, plane, row, col)   those that it was learned from; NaN where its mask hid them
        chain : lengths and seed of its last stage

        Raises
        ------
        GddError
            Images other than those of the chain, or of other sizes; another number of sweeps than its last stage had; a
            chain of a file, which has no images to project by.
        """
        check_kind("trained", trained, (Pretrained, Refined))
        check_kind("chain", chain, ChainSpec)
        traces, stage = traces_of(trained), "refine" if isinstance(trained, Refined) else "pretrain"
        model = cls(trained.model, random_state=chain.seed, **{stage: (chain.burn_in, chain.collect)})
        array = as_images(images)
        model.layout_, model.scale_ = find_layout(array, labelled=True), Scale(np.zeros(array.shape[1]), 1.0)
        data, _ = scaled_data(array, model.scale_)
        check_fits(data.images, trained.model)
        check_start(trained, data, trained.model, "trained")
        check_projection(trained.model)
        if (sweeps := next(iter(traces.values())).sizes[DRAW]) != chain.sweeps:
            raise GddError(f"chain: {chain.sweeps} sweeps given; the last stage of trained had {sweeps}")
        model.model_, model.seed_, model.kept_ = trained.model, chain.seed, chain.collect
        model.n_features_in_, model.coords_ = prod(array.shape[1:]), coords_of(images, len(array))
        model.chain_, model.traces_, model.atoms_ = trained, traces, project(trained)
        return model

    # ---- new images

    def transform(self, X) -> np.ndarray:
        """Features (image, feature): posterior means of the maps, atom by atom, row by row, in the model's units."""
        check_is_fitted(self)
        return flat_means(self._deconvolve(self._checked(X, reset=False)))

    def deconvolve(self, X) -> xr.Dataset:
        """Maps of images with their axes named, as `gdd.infer` returns them, in the units of the model.

        The coordinates ``row`` and ``col`` are the pixels at which an atom's first row and column lie; those of
        labelled images along ``image`` stay.
        """
        check_is_fitted(self)
        return self._deconvolve(self._checked(X, reset=False)).assign_coords(along_images(X))

    def _deconvolve(self, array: np.ndarray) -> xr.Dataset:
        """`deconvolve` of images that have been checked."""
        burn_in, collect = sweeps_of("infer", self.infer)
        data = self._scaled(array)
        mask = np.ones(data.images.shape, bool) if data.mask is None else data.mask
        with self._threads(), Bar(len(data.images), self.verbose, "images") as bar:
            codes = infer(
                self.chain_, self.atoms_, data.images, mask=mask, burn_in=burn_in, collect=collect, seed=self.seed_,
                first_image=None, progress=bar.step, device=self.device,
            )
        down, right = self.model_.stride
        return codes.assign_coords({ROW: np.arange(codes.sizes[ROW]) * down, COL: np.arange(codes.sizes[COL]) * right})

    def inverse_transform(self, X) -> np.ndarray:
        """Images that features stand for, in the axes and the units of the images of ``fit``; nothing is missing.

        They are not cut off where pixels of ``fit`` ended, such as at 0 and 255.
        """
        check_is_fitted(self)
        features = as_finite(check_array(X, dtype=np.float32), (IMAGE, FEATURE), "X")
        if features.shape[1] != (needed := prod(self._map_shape)):
            raise GddError(f"X: {features.shape[1]} features given; {needed} are needed")
        maps = features.reshape(len(features), *self._map_shape)
        images = render_projected(self.atoms_.values, maps, self.model_.stride, self.model_.image_size)
        return self.layout_.restore(self.scale_.backward(images))

    def score(self, X, y=None) -> float:
        """Coefficient of determination R^2 of images rebuilt from their features, over all pixels that are observed.

        1 is perfect; 0 is no better than the mean of every plane. Images of which every plane is constant have none.
        """
        check_is_fitted(self)
        array = self._checked(X, reset=False)
        images = self.layout_.arrange(array).astype(float)
        spread = from_means(images)
        if not np.abs(spread).max() > LEAST_CONTRAST**2 * np.nanmax(np.abs(images), initial=0):
            raise GddError("X: every plane is constant, so there is no variance to explain; give images with contrast")
        rebuilt = self.layout_.arrange(self.inverse_transform(flat_means(self._deconvolve(array))))
        return float(1 - np.nansum((images - rebuilt) ** 2) / np.nansum(spread**2))

    def sample(self, n: int = 1, random_state=None) -> np.ndarray:
        """Draw images: each coefficient is active as often, and as strongly, as in the training images, independently.

        ``random_state`` : a whole number; None gives the same images at every call
        """
        check_is_fitted(self)
        count = check_whole("n", n, 1)
        seed = self.seed_ if random_state is None else check_seed(random_state, "random_state")
        check_memory("n", count * max(prod(self._map_shape), self.n_features_in_))
        chain, shape = self.chain_, self.model_.shapes()[-1]
        top = (chain.layers[-1] if isinstance(chain, Pretrained) else chain).state.local
        maps = unpool(top.z, top.w, shape.map_size, shape.block)
        fitted = JointLocal((), np.where(maps != 0, 0, EMPTY), maps, np.ones(1))
        copies = fitted._replace(z=np.repeat(fitted.z[:1], count, 0), w=np.repeat(maps[:1], count, 0))
        drawn = resample_top(copies, fitted, np.random.default_rng(seed))
        return self.inverse_transform(drawn.w.reshape(count, -1))

    # ---- what was learned

    def to_dataset(self, dense: bool = False) -> xr.Dataset:
        """Everything learned as labelled arrays, see `gdd.results.to_dataset`; and ``projected_atoms``.

        Coordinates of the training images, such as ``label``, stand along ``image``: activations are selected by them.
        """
        check_is_fitted(self)
        names = dict(zip(DICTIONARY, ("projected_atom", PLANE, "projected_row", "projected_col"), strict=True))
        data = results.to_dataset(self.chain_, self.traces_, dense)
        data = data.assign_coords({name: (IMAGE, values) for name, values in self.coords_.items()})
        projected = self.atoms_.rename(names).assign_attrs(long_name="top atoms in the image plane")
        return data.assign(projected_atoms=projected)

    def to_inferencedata(self):
        """Traces of the last stage as ArviZ's InferenceData, of the sweeps that it kept.

        After refinement a variable for each number of a sweep, such as ``log_joint`` and ``gamma_w``; after pretraining
        one for each layer too, such as ``log_joint_1``. Needs the package arviz.
        """
        check_is_fitted(self)
        try:
            import arviz
        except ImportError as error:
            raise GddError("arviz: not installed; pip install 'arviz<1'") from error
        kept = slice(-self.kept_, None)
        if results.ALL in self.traces_:
            return arviz.InferenceData(posterior=self.traces_[results.ALL].isel({DRAW: kept}))
        named = [
            traces.isel({DRAW: kept}).rename({name: f"{name}_{stage}" for name in traces.data_vars})
            for stage, traces in self.traces_.items()
        ]
        return arviz.InferenceData(posterior=xr.merge(named, combine_attrs="drop"))

    def save(self, path: str | Path) -> None:
        """Write the model to a NetCDF file, making its folder; `gdd.load` reads it. The images are not in it."""
        check_is_fitted(self)
        place = user_path("path", path)
        results.write(saved(self), place)

    def plot_atoms(self, layer: int | None = None, ax: Axes | None = None) -> Axes:
        """Atoms of a layer, from 1, or by default the top layer's in the image plane; see `gdd.plot.plot_atoms`."""
        check_is_fitted(self)
        if layer is None:
            return plot.plot_atoms(self.atoms_, ax)
        planes = self.model_.shapes()[check_whole("layer", layer, 1, len(self.model_.layers)) - 1].planes
        if planes not in (1, 3):
            raise GddError(f"layer: {layer} has atoms of {planes} planes, which have no picture; leave layer out")
        return plot.plot_atoms(self.to_dataset()[f"dictionary_{layer}"].values, ax)

    def plot_reconstruction(self, X, ax: Axes | None = None, count: int = 8) -> Axes:
        """Images above the same rebuilt from their features; see `gdd.plot.plot_reconstruction`."""
        check_is_fitted(self)
        array = self._checked(X, reset=False)[: check_whole("count", count, 1)]
        rebuilt = self.inverse_transform(flat_means(self._deconvolve(array)))
        images, rebuilt = map(self.layout_.arrange, (array, rebuilt))
        return plot.plot_reconstruction(images, rebuilt, ax)

    def plot_trace(self, name: str = "log_joint", stage: str | int | None = None, ax: Axes | None = None) -> Axes:
        """One number of every sweep of a stage of ``traces_``, by default the last; see `gdd.plot.plot_trace`."""
        check_is_fitted(self)
        stage = check_choice("stage", [*self.traces_][-1] if stage is None else str(stage), list(self.traces_))
        return plot.plot_trace(self.traces_[stage], name, ax)

    def plot_activations(self, image, atom: int, ax: Axes | None = None) -> Axes:
        """Where in one image an atom is used; see `gdd.plot.plot_activations`."""
        check_is_fitted(self)
        array = self._one_image(image)
        maps, picture = self._deconvolve(array)["mean"].values[0], self.layout_.arrange(array)[0]
        return plot.plot_activations(picture, maps, atom, self.model_.stride, self.model_.projected_size, ax)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the features: atom, and the pixel at which its first row and column lie."""
        check_is_fitted(self)
        down, right = self.model_.stride
        names = [f"atom{k}_row{i * down}_col{j * right}" for k, i, j in np.ndindex(*self._map_shape)]
        return np.array(names, object)

    # ---- inside

    @property
    def _map_shape(self) -> tuple[int, int, int]:
        return (len(self.atoms_), *self.model_.shapes()[-1].map_size)

    def _model_size(self) -> tuple[int, int, int] | None:
        check_kind("model", self.model, (ModelSpec, type(None)))
        return None if self.model is None else (self.model.planes, *self.model.image_size)


def load(path: str | Path) -> DeepDeconvolution | OneStepFeatures:
    """Read what `DeepDeconvolution.save` or `OneStepFeatures.save` has written; it transforms to the same bits.

    Raises
    ------
    GddError
        There is no such file; it is damaged, something else, or was written by another version.
    """
    data = results.read(place := user_path("path", path))
    if "spec" in data.attrs and "parameters" not in data.attrs:
        raise GddError(f"path: {place} holds chains without a model; `gdd.results.from_dataset` makes chains of it")
    try:
        return one_step.restored(data) if data.attrs.get("estimator") == "OneStepFeatures" else restored(data)
    except files.UNREADABLE as error:
        what = f"{type(error).__name__}: {error}"
        raise GddError(f"path: {place} is damaged: a part of the model is missing or wrong ({what})") from error


def flat_means(codes: xr.Dataset) -> np.ndarray:
    """Features (image, feature) of a deconvolution: its posterior means in one row."""
    return codes["mean"].values.reshape(codes.sizes[IMAGE], -1)


def saved(model: DeepDeconvolution) -> xr.Dataset:
    """Return all that a file holds of a fitted model."""
    attrs = model._attributes(model=model.model and asdict(model.model)) | {
        "kept": model.kept_, "images_sha256": training_digest(model.chain_),
        "trace_attributes": json.dumps({stage: traces.attrs for stage, traces in model.traces_.items()}),
    }
    return model.to_dataset().merge(results.last_arrays(model.chain_)).assign_attrs(attrs)


def restored(data: xr.Dataset) -> DeepDeconvolution:
    """Model of what `saved` has put together."""
    parameters = parameters_of(data.attrs)
    for name in RETIRED:
        parameters.pop(name, None)
    spec = parameters["model"] and results.spec_from(parameters["model"])
    model = DeepDeconvolution._from_attributes(data.attrs, parameters | {"model": spec})
    model.coords_ = {name: c.values for name, c in data.coords.items() if c.dims == (IMAGE,)}
    model.chain_, model.traces_ = results.from_dataset(data)
    for stage, attrs in json.loads(data.attrs["trace_attributes"]).items():
        model.traces_[stage] = model.traces_[stage].assign_attrs(attrs)
    model.kept_, model.model_ = int(data.attrs["kept"]), model.chain_.model
    shares = {name: np.atleast_1d(value).tolist() for name, value in data.projected_atoms.attrs.items()}
    shares.pop("long_name", None)
    model.atoms_ = xr.DataArray(data.projected_atoms.values, dims=DICTIONARY, name="projected_atoms", attrs=shares)
    return model


def check_projection(model: ModelSpec) -> None:
    """Refuse a model whose top atoms, once projected, could not explain an image."""
    for axis, inner, outer in zip((ROW, COL), model.projected_size, model.image_size, strict=True):
        if inner > outer:
            raise GddError(
                f"model: top atoms project to {inner} pixels along axis '{axis}', where images have {outer}; give the"
                " layers smaller atoms, or smaller pools"
            )
    if model.layers[-1].atoms < 2:
        raise GddError("model: 1 atom in the top layer; the prior odds 1 / (K - 1) of new images need 2 or more")


def coords_of(images, count: int) -> dict[str, np.ndarray]:
    """Coordinates along ``image`` by name, of labelled images their own."""
    labels = {name: results.storable(name, variable.values) for name, variable in along_images(images).items()}
    return {IMAGE: np.arange(count)} | labels


def traces_of(chain: Trained) -> dict[str, xr.Dataset]:
    """Traces of a chain by stage."""
    if isinstance(chain, Refined):
        return {results.ALL: chain.traces}
    return {str(level): layer.traces for level, layer in enumerate(chain.layers, 1)}


def warn_of_idle_atoms(chain: Trained) -> None:
    """Warn of atoms of layer 1 that have all but vanished and are on nearly everywhere, which the prior favours."""
    if not isinstance(chain, Pretrained):
        return
    state = chain.layers[0].state
    norms = np.sqrt((state.shared.dictionary**2).sum(axis=(1, 2, 3)))
    on = (state.local.z >= 0).mean(axis=(0, 2, 3))
    idle = int(((norms < 0.1 * norms.max()) & (on > 0.5)).sum())
    if idle > len(norms) // 10:
        warnings.warn(
            f"atoms: {idle} of {len(norms)} in layer 1 have vanished, and are on nearly everywhere without explaining"
            " anything; give fewer atoms, more images, or fewer sweeps",
            stacklevel=3,
        )
