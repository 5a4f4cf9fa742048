"""What ``pip install`` of a wheel leaves: it runs in a folder of its own, or says in one sentence what it lacks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: packages of the extras, which ``pip install`` leaves out
EXTRAS = ("IPython", "arviz", "bs4", "dask", "distributed", "docutils", "hypothesis", "jupyter_cache", "jupytext",
          "nbclient", "nbformat", "papermill", "pygments", "pytest", "sphinx")
WITHOUT_EXTRAS = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {EXTRAS} else find(name, path, target)
PathFinder.find_spec = find_spec
"""
PAGES_ONLY = ("gdd_book.pages", "gdd_book.figures", "gdd.cluster")
EVERY_MODULE = f"""
import importlib, pkgutil, gdd, gdd_book
for package in (gdd, gdd_book):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.startswith({PAGES_ONLY}):
            print(importlib.import_module(found.name).__file__)
"""
TOY = """
import sys, xarray
from gdd_book import run
from gdd_book.experiments import EXPERIMENTS, Experiment, Outcome
work = lambda parameters, run: Outcome(xarray.Dataset({"total": 1.0}), {}, "digits", "none", 0)
EXPERIMENTS["toy"] = Experiment("toy", work, {"demo": {"n": 5}}, {}, False)
sys.exit(run.main(["run", "toy"]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder into which a wheel was installed, made from the archive of sources, without what it needs."""
    pytest.importorskip("setuptools", "77", "a wheel is built with setuptools 77, which the extra test has")
    place = tmp_path_factory.mktemp("wheel")
    source, site = place / "source", place / "site"
    for name in ("gdd", "book/gdd_book"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools.build_meta import build_{0}; build_{0}('..')"
    subprocess.run([sys.executable, "-c", build.format("sdist")], cwd=source, check=True, capture_output=True)
    (archive,) = place.glob("*.tar.gz")
    shutil.unpack_archive(archive, place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    wheel = [sys.executable, "-c", build.format("wheel")]
    subprocess.run(wheel, cwd=unpacked, check=True, capture_output=True)
    shutil.move(*(place / "unpacked").glob("*.whl"), place)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", site]
    subprocess.run([*pip, *place.glob("*.whl")], check=True)
    (site / "sitecustomize.py").write_text(WITHOUT_EXTRAS)
    return site


@pytest.fixture
def run(installed, tmp_path):
    """Run Python in an empty folder, as a user who has nothing but the wheel and what it requires."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GDD_", "XDG_", "PYTEST_"))}
    home = {"HOME": str(tmp_path), "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments, **more):
        command = [sys.executable, *map(str, arguments)]
        where = {"cwd": tmp_path, "env": kept | home | more}
        return subprocess.run(command, capture_output=True, text=True, check=False, **where)

    return run


def files(folder):
    return {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_every_module_but_those_of_pages_can_be_imported(run, installed):
    done = run("-c", EVERY_MODULE)
    assert done.returncode == 0, done.stderr
    places = done.stdout.split()
    assert len(places) > 60 and all(place.startswith(str(installed)) for place in places)


def test_results_go_to_the_users_folder(run, installed, tmp_path):
    before = files(installed)
    done = run("-c", TOY)
    assert done.returncode == 0, done.stderr
    record = Path(done.stdout.strip())
    assert record.is_file() and record.is_relative_to(tmp_path)
    assert files(installed) == before


@pytest.mark.parametrize("words", ["--version", "run"])
def test_the_command_imports_nothing_before_it_is_needed(run, installed, words):
    done = run("-X", "importtime", installed / "bin" / "gdd", words, PYTHONOPTIMIZE="2")
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert done.returncode == (2 if words == "run" else 0) and "argparse" in loaded
    assert not loaded & {"gdd", "numba", "numpy", "sklearn", "xarray", "papermill", "jupytext"}
