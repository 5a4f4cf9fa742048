"""Data flow down: a module of the package imports only from those above it in this list."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "gdd"

LEVELS = [
    ["axes", "compiling", "machine", "files", "progress", "interrupt", "processes"],
    ["checks"],
    ["subsets", "contrast", "sources", "folders", "formats", "planted", "datasets", "record_files"],
    ["spec", "counts"],
    ["convolution", "pooling", "placement", "distributions", "state", "model", "joint"],
    ["sampler", "printed", "calibration", "shortcuts", "calibration_joint", "enumeration"],
    ["voting", "voting_joint", "projection"],
    ["deconvolution_kernels", "deconvolution", "deconvolution_plain", "features", "baselines", "feedforward",
     "tuning", "classify", "matching", "sharpness", "timing"],
    ["joint_inference", "interpolation", "filling", "completion", "generation", "layerwise"],
    ["pipeline", "means", "dictionaries"],
    ["training", "class_atoms", "caltech", "class_training"],
    ["benchmarks"],
    ["experiments"],
    ["paper_values", "claims", "errata", "records", "figures", "papermill_io", "notebooks", "runlog", "cli"],
]
ORDER = [name for level in LEVELS for name in level]


def modules():
    """Every module of the package, by its dotted name without the leading ``gdd.``."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            yield name, path


def imported(path, name):
    """Modules of the package that a file imports, anywhere in it."""
    known = {module for module, _ in modules()}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import; write it in full"
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for full in wanted:
            dotted = full.removeprefix("gdd.") if full.startswith("gdd.") else ""
            while dotted and dotted not in known:
                dotted = dotted.rpartition(".")[0]
            if dotted:
                yield dotted


def rank(name):
    """Place in the order; the files of a folder have the place of the folder."""
    first = name.partition(".")[0]
    assert first in ORDER, f"gdd.{name} is not in the order; add it where it belongs"
    return ORDER.index(first)


@pytest.mark.parametrize("name", [name for name, _ in modules()])
def test_imports_go_one_way(name):
    for other in imported(dict(modules())[name], name):
        inside = other.partition(".")[0] == name.partition(".")[0]
        assert inside or rank(other) < rank(name), f"gdd.{name} imports gdd.{other}, which is not above it"


@pytest.mark.parametrize("folder", ["figures", "experiments", "sampler", "benchmarks"])
def test_no_circle_inside_a_folder(folder):
    """Files that share a place in the order must still be importable in some order."""
    paths = {name: path for name, path in modules() if name == folder or name.startswith(folder + ".")}
    waiting = {name: {o for o in imported(path, name) if o in paths and o != name} for name, path in paths.items()}
    while waiting:
        free = [name for name, needs in waiting.items() if not needs & set(waiting)]
        assert free, f"these import each other: {sorted(waiting)}"
        for name in free:
            del waiting[name]


def test_a_wrong_import_would_be_seen(tmp_path):
    wrong = tmp_path / "spec.py"
    wrong.write_text("def f():\n    from gdd.records import write\n")
    assert list(imported(wrong, "spec")) == ["records"]
    assert rank("records") > rank("spec")
