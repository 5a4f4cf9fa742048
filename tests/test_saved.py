"""A saved model is all of the fitted one: nothing is forgotten, damage is noticed, other images are refused."""

import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait

import netCDF4
import numpy as np
import pytest
import xarray as xr
from agreement import arrays_of, largest_file
from tiny import QUICK

import gdd
from gdd import DeepDeconvolution, results
from gdd.base import files
from gdd.base.checks import GddError
from gdd_book import models


@pytest.fixture(scope="module")
def named(table):
    return DeepDeconvolution(**QUICK, image_size=(28, 28)).set_output(transform="pandas").fit(table)


def reloaded(model, folder):
    model.save(folder / "m.nc")
    return gdd.load(folder / "m.nc")


def plain(value):
    """Value without the images, which no file holds, and with its arrays by name."""
    if isinstance(value, gdd.Pretrained):
        return [arrays_of(layer.state) for layer in value.layers]
    if isinstance(value, gdd.Refined):
        return [value.refinement, arrays_of(value.state), arrays_of(value.last)]
    if isinstance(value, xr.DataArray | xr.Dataset):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


# ---- nothing is forgotten
@pytest.mark.parametrize("name", ["named", "refined"])
def test_a_loaded_model_has_every_attribute_of_the_fitted_one(name, request, tmp_path):
    model = request.getfixturevalue(name)
    loaded = reloaded(model, tmp_path)
    assert vars(loaded).keys() == vars(model).keys()
    for key, value in vars(model).items():
        np.testing.assert_equal(plain(getattr(loaded, key)), plain(value), err_msg=key)


@pytest.mark.parametrize("refined", [False, True])
def test_a_loaded_chain_goes_on_with_its_own_images_only(digits, tmp_path, refined):
    """To the same bits; others are refused, though there are as many and one pixel is another."""
    more = {"refine": (2, 4), "random_state": 1} if refined else {}
    model = DeepDeconvolution(**QUICK, **more).fit(digits)
    assert not refined or not np.array_equal(model.chain_.state.local.w, model.chain_.last.local.w)
    start, short = reloaded(model, tmp_path).chain_, gdd.ChainSpec(1, 1, seed=5)
    images = model.scale_.forward(digits[:, None].astype(float))
    others = images.copy()
    others[3, 0, 14, 14] += 0.01
    for go_on in [gdd.refine] if refined else [gdd.refine, gdd.pretrain]:
        with pytest.raises(GddError, match="start: trained on other images, or under another mask"):
            go_on(others, start.model, short, start=start)
        with pytest.raises(GddError, match="start: trained on other images, or under another mask"):
            go_on(images, start.model, short, start=start, mask=images < 1)
        loaded, kept = (go_on(images, start.model, short, start=one) for one in (start, model.chain_))
        np.testing.assert_equal(plain(loaded), plain(kept))
    with pytest.raises(GddError, match="trained: of a file, which has no images to vote; use the `atoms_`"):
        gdd.project(start)


# ---- damage is noticed
def flips(whole, count):
    """The file with one bit changed, half of them near its beginning; then cut off at random places."""
    generator = np.random.default_rng(0)
    for number in range(count):
        changed = bytearray(whole)
        at = int(generator.integers(len(whole) if number % 2 else len(whole) // 3))
        changed[at] ^= 1 << int(generator.integers(8))
        yield bytes(changed)
    for at in generator.integers(len(whole), size=count // 10):
        yield whole[:at]


def test_no_changed_bit_gives_other_features(named, table, tmp_path):
    named.save(path := tmp_path / "m.nc")
    features, refused = named.transform(table), 0
    for changed in flips(whole := path.read_bytes(), 30):
        path.write_bytes(changed)
        try:
            assert gdd.load(path).transform(table).equals(features)
        except GddError as error:
            refused += "damaged" in str(error)
        path.write_bytes(whole)  # in place, while what failed may still be in memory
        gdd.load(path)
    assert refused > 15


def parameters(**changes):
    return lambda data: data.assign_attrs(parameters=json.dumps(json.loads(data.attrs["parameters"]) | changes))


@pytest.mark.parametrize("spoil", [
    *(lambda data, name=name: data.drop_vars(name) for name in ("dictionary_1", "projected_atoms")),
    *(lambda data, name=name: data.assign_attrs({name: "{"}) for name in ("spec", "output")),
    lambda data: data.assign_attrs(layout=7), parameters(speed=3), parameters(model={"layers": 3}),
    lambda data: data.drop_attrs(deep=False),
])
def test_what_is_missing_or_wrong_in_a_file_is_refused(named, tmp_path, spoil):
    """Even where the checksum is right."""
    named.save(path := tmp_path / "m.nc")
    results.write(spoil(results.read(path)), path)
    with pytest.raises(GddError, match="path: .* is damaged"):
        gdd.load(path)


@pytest.mark.parametrize("part", ["array weight_2", "attribute parameters"])
def test_what_another_tool_changes_or_removes_is_named(named, part, tmp_path):
    named.save(path := tmp_path / "m.nc")
    with netCDF4.Dataset(path, "a") as file:
        if part == "array weight_2":
            file["weight_2"][0, 0, 0, 0] += 1.0
        else:
            file.delncattr("parameters")
    with pytest.raises(GddError, match=f"path: .* cannot be read: it is damaged: {part} does not match its checksum"):
        gdd.load(path)


def test_older_files_have_one_checksum_of_all(tmp_path):
    path = tmp_path / "m.nc"
    shutil.copy(models.SHIPPED / "mnist-1000-refined.nc", path)
    assert files.OLD in files.load(path).attrs and files.OLD not in results.read(path).attrs
    with netCDF4.Dataset(path, "a") as file:
        file["gamma_w_2"][...] = file["gamma_w_2"][...] + 1
    with pytest.raises(GddError, match="it is damaged: its contents do not match their checksum"):
        gdd.load(path)


# ---- threads, full disks
THREADS = """
import sys, numpy as np, joblib, gdd
model = gdd.load(sys.argv[1] + "/m.nc")
def work(number):
    for _ in range(6):
        model.save(f"{sys.argv[1]}/{number}.nc")
        assert np.array_equal(gdd.load(f"{sys.argv[1]}/{number}.nc").atoms_, model.atoms_)
joblib.Parallel(3, "threading")(joblib.delayed(work)(number) for number in range(3))
"""


def test_files_can_be_read_and_written_in_several_threads(named, tmp_path):
    """Each its own file; before, three of three such processes ended in SIGSEGV or SIGBUS."""
    named.save(tmp_path / "m.nc")
    subprocess.run([sys.executable, "-c", THREADS, str(tmp_path)], check=True)


def test_what_is_read_where_it_is_used_waits_for_the_same_lock(tmp_path):
    whole = xr.Dataset({"map": (("image", "atom"), np.arange(12.0).reshape(6, 2))})
    places = [tmp_path / f"{number}.nc" for number in range(2)]
    for number, place in enumerate(places):
        files.write(whole.isel(image=slice(3 * number, 3 * number + 3)), place)
    lazy = files.open_several([str(place) for place in places], "image")
    for one in (lazy, pickle.loads(pickle.dumps(lazy))):  # as sent to a worker
        with ThreadPoolExecutor(1) as pool:
            with files._LOCK:
                reading = pool.submit(one.load)
                assert not wait([reading], timeout=0.5).done
            assert reading.result().equals(whole)


def test_a_full_disk_is_one_sentence_and_the_old_file_stays(named, tmp_path):
    named.save(path := tmp_path / "m.nc")
    before = path.read_bytes()
    with largest_file(20_000), pytest.raises(GddError, match=f"^path: cannot write {path}.* before is kept"):
        named.save(path)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]
