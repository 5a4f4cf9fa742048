"""A folder imports only from folders below it; the library never imports the book's own code; no circles."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"gdd": ROOT / "gdd", "gdd_book": ROOT / "book" / "gdd_book"}

#: from the ground up; a file that stands directly in a package is a floor of its own
FLOORS = [
    *("gdd.base", "gdd.model", "gdd.reference", "gdd.layout", "gdd.sampler", "gdd.cuda", "gdd.inference"),
    *("gdd.projection", "gdd.plot", "gdd.results", "gdd.cluster", "gdd.transformer", "gdd.one_step"),
    *("gdd.estimator", "gdd"),
    *("gdd_book.checkout", "gdd_book.data", "gdd_book.evaluate", "gdd_book.checks", "gdd_book.paper_values"),
    *("gdd_book.progress", "gdd_book.dictionaries", "gdd_book.parameters"),
    *("gdd_book.training", "gdd_book.models", "gdd_book.benchmarks", "gdd_book.experiments", "gdd_book.records"),
    *("gdd_book.figures", "gdd_book.launch"),
    *("gdd_book.pages", "gdd_book.run", "gdd_book"),
]

#: every module of both packages, by its dotted name
MODULES = {
    ".".join([package, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__"): path
    for package, root in PACKAGES.items() for path in sorted(root.rglob("*.py"))
}


def imported(path: Path, name: str) -> set[str]:
    """Modules of the two packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import; write it in full"
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for dotted in wanted:
            while dotted and dotted not in MODULES:
                dotted = dotted.rpartition(".")[0]
            if dotted:
                found.add(dotted)
    return found


def floor(name: str) -> int:
    """Place of a module's folder, from the ground up."""
    parts = name.split(".")
    folder = ".".join(parts[:2]) if ".".join(parts[:2]) in FLOORS else parts[0]
    assert folder in FLOORS and (len(parts) == 1 or folder != parts[0]), f"{name}: not in FLOORS; add it there"
    return FLOORS.index(folder)


@pytest.mark.parametrize("name", MODULES)
def test_a_folder_imports_only_lower_folders(name):
    for other in imported(MODULES[name], name):
        if other != "gdd":  # its version and its place
            assert floor(other) <= floor(name), f"{name} imports {other}, which is not below it"


def test_no_circles():
    waiting = {name: imported(path, name) - {name, "gdd"} for name, path in MODULES.items()}
    while waiting:
        free = [name for name, needs in waiting.items() if not needs & set(waiting)]
        assert free, f"these import each other: {sorted(waiting)}"
        for name in free:
            del waiting[name]


@pytest.mark.parametrize("folder", ["gdd.model", "gdd.reference"])
def test_the_readable_mathematics_imports_no_compiler(folder):
    """Nor does anything that it imports; ``gdd`` itself, which imports all, aside."""
    waiting, seen = [name for name in MODULES if name.startswith(folder)], {"gdd"}
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            assert "numba" not in MODULES[name].read_text(encoding="utf-8"), name
            waiting += imported(MODULES[name], name)
    assert len(seen) > 8
