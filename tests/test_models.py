"""Trained models as files: a run writes them, `gdd.load` reads them, activations are selected by label."""

import numpy as np
import pytest

import gdd
from gdd.sampler.checkpoint import digest_of
from gdd_book import checkout, models
from gdd_book.launch import run_experiment


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Names of the models that a short run has left in a folder of its own, and that folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GDD_RESULTS", str(tmp_path_factory.mktemp("results")))
        patch.setenv("GDD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(models, "EXAMPLES", 10)
        short = {"n_train": 20, "n_generated": 10, "burn_in": 3, "collect": 2, "refine_burn_in": 2, "refine_collect": 1}
        run_experiment("mnist-generated", "demo", [(name, str(value)) for name, value in short.items()])
        yield checkout.results()


@pytest.fixture(params=["pretrained", "refined"])
def name(request, learned):
    return next((learned / "models").glob(f"mnist-20-{request.param}*.nc")).stem


def test_a_model_can_be_used_anywhere(learned, name):
    images = models.images_of(name)
    assert images.dims == ("image", "plane", "row", "col") and sorted(images.label.values) == [*range(10)]
    model = gdd.load(learned / "models" / f"{name}.nc")
    assert model.transform(images).shape == (10, 640) and model.sample(2).shape == (2, 1, 28, 28)
    data = model.to_dataset(dense=True)
    threes = data.map_1.isel(image=data.label.values == 3)
    assert threes.dims == ("image", "atom_1", "row_1", "col_1") and len(threes) == 1
    assert gdd.project(models.load(name).chain_).shape == model.atoms_.shape  # with its images it is projected again


def test_pieces_of_single_top_atoms_add_up_to_the_drawing(name):
    chain = models.load(name).chain_
    whole = models.redrawn(chain)
    pieces = sum(models.redrawn(chain, atom=k).astype(float) for k in range(chain.model.layers[-1].atoms))
    np.testing.assert_allclose(pieces, whole, atol=1e-4 * np.abs(whole).max())
    found = models.one_atom(name, most=3)
    left, energy = (((found.own - part) ** 2).sum(["row", "col"]) for part in (found.part, 0))
    np.testing.assert_allclose(found.share_of_part * energy, energy - left, atol=1e-6 * float(energy.max()))
    assert 0 <= found.share_of_projected.min() <= found.share_of_projected.max() <= 1
    assert found.share_of_part.max() > 0


@pytest.mark.parametrize("path", sorted(models.SHIPPED.glob("*.nc")), ids=lambda path: path.stem)
def test_a_model_of_the_book_can_be_read(path):
    model, images = gdd.load(path), models.images_of(path.stem)
    assert path.stat().st_size < 4e6
    assert {"number", "label"} <= {*images.coords} and len(images) == model.to_dataset().sizes["image"]
    assert models.existing(path.stem) == path  # in whatever folder the user's results are
    drawn, digits = models.redrawn(models.load(path.stem).chain_), images[0].size <= models.DIGIT
    own, others = (models.explained_energy(images.values, one).sum() for one in (drawn, np.roll(drawn, 1, axis=0)))
    assert own > (1.5 if digits else 3) * others
    assert len(images) == (100 if digits else 6)
    assert model.chain_.digest == digest_of([images.values, None])  # its chain goes on with the images of the file
    assert not digits or np.unique(images.label).tolist() == [*range(10)]
