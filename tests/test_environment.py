"""pyproject.toml, environment.yml, constraints.txt and what is installed name the same packages."""

import ast
import sys
import tomllib
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"matplotlib-base": "matplotlib"}
BY_PIP_ONLY = {"sphinx-mathjax-offline"}  # environment.yml gets it through its pip line
PEERS = {"spams-bin", "sporco"}  # extra of `gdd bench`, which says where one is missing; never needed otherwise
CUDA = {"numba-cuda"}  # extra for whoever has a graphics processor, from pip

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = {
    canonicalize_name(r.name): r
    for r in map(Requirement, [*PROJECT["dependencies"], *sum(PROJECT["optional-dependencies"].values(), [])])
}
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())


def test_environment_has_the_requirements_of_pyproject():
    assert [spec for spec in CONDA if not isinstance(spec, str)] == [{"pip": ["-e .[book,test]"]}]
    parsed = [Requirement(spec) for spec in CONDA if isinstance(spec, str)]
    conda = {CONDA_NAMES.get(r.name, str(canonicalize_name(r.name))): r.specifier for r in parsed}
    assert conda.pop("python") == SpecifierSet(PROJECT["requires-python"])
    assert conda.pop("pip") == SpecifierSet()
    assert conda == {name: r.specifier for name, r in REQUIREMENTS.items() if name not in BY_PIP_ONLY | PEERS | CUDA}


@pytest.mark.parametrize("name", sorted(REQUIREMENTS))
def test_pin_and_installed_version_satisfy_the_requirement(name):
    pins = {canonicalize_name(pinned): pin for pinned, pin in PINS.items()}
    assert Version(pins[name]) in REQUIREMENTS[name].specifier
    if name in PEERS | CUDA and name not in {canonicalize_name(d.name) for d in distributions()}:
        pytest.skip(f"{name} is not installed; it comes with an extra that nothing else needs")
    assert Version(version(name)) in REQUIREMENTS[name].specifier


def test_every_import_of_the_package_is_required():
    """A package that is imported but not named here would be missing on another machine."""
    words = {word for file in ROOT.glob("gdd/**/*.py") for word in imported(file.read_text())}
    names = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml", "llvmlite": "numba", "spams": "spams-bin",
             "skimage": "scikit-image"}
    needed = {names.get(word, word) for word in words - set(sys.stdlib_module_names) - {"gdd", "__future__"}}
    assert {"numpy", "scikit-learn"} <= needed
    assert {canonicalize_name(name) for name in needed} <= set(REQUIREMENTS)


def imported(source: str) -> set[str]:
    """Names of the packages that a file imports, anywhere in it; a sentence that begins with "from" imports nothing."""
    nodes = list(ast.walk(ast.parse(source)))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}
    return {name.partition(".")[0] for name in whole | parts}
