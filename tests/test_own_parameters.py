"""Chapters as a reader runs them: without any record, at the smallest value of each parameter, and at another one.

The quick tests run those that take a few seconds; ``-m slow`` all of them.
"""

import ast
from pathlib import Path

import jupytext
import pytest
import yaml
from bs4 import BeautifulSoup
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from gdd.base import checks
from gdd.base.checks import GddError
from gdd_book.data import datasets
from gdd_book.pages import expected, notebooks

QUICK = yaml.safe_load((Path(__file__).parent / "reference" / "parameters.yml").read_text(encoding="utf-8"))
LENGTHS = {"burn_in": (0, 3), "collect": (1, 3)}
LIVE = LENGTHS | {"data": ("digits", "mnist"), "seed": (0, 7)}
SCALE = {"scale": ("paper", "demo")}
MODEL = {"model": ("mnist-1000-refined", "mnist-1000-pretrained")}
PRECISIONS = {"noise_precision": (1.0, 30.0), "weight_precision": (10.0, 1.0)}

#: parameters of every chapter: the smallest value (of words, the chapter's own), and another
VALUES = {
    "intro": {"verdicts": (["open"], ["partly", "reproduced"])},
    "claims": {"verdicts": (["open"], ["partly", "reproduced"]),
               "statuses": (["not attempted"], ["in words", "at the paper's scale"])},
    "notation": {"model_name": ("MNIST", "CALTECH101")},
    "model/single-layer": LENGTHS | PRECISIONS | {"seed": (0, 7), "n_images": (1, 30)},
    "model/pooling": {"seed": (0, 7), "pool": ([1, 1], [2, 4]), "map_size": ([1, 1], [5, 7]), "n_maps": (1, 300),
                      "digit": (0, 9)},
    "model/projection": {"model": ("mnist-1000-refined",) * 2, "seed": (0, 7), "pool": ([1, 1], [3, 2]),
                         "n_images": (1, 50), "faithful": (0.0, 1.0), "repeats": (1, 7)},
    "model/refinement": LENGTHS | {"seed": (0, 7), "n_train": (1, 20), "refine_noise": (2.0, 44.0)},
    "model/depth": LENGTHS | {"seed": (0, 7), "n_train": (1, 20), "noises": ([2.0], [1.0, 10.0, 100.0])},
    "model/errata": {"seed": (0, 7), "n_images": (1, 5), "n_chains": (1, 300), "sweeps": (1, 10)},
    "model/as-printed": {"data": ("digits", "mnist"), "seed": (0, 7), "n_train": (1, 12), "sweeps": (1, 4)},
    "inference/gibbs": PRECISIONS | {"seed": (0, 7), "n_images": (1, 20)},
    "inference/mixing": PRECISIONS | {"seed": (0, 7), "n_images": (1, 20), "sweeps": (4, 20)},
    "inference/testing": LENGTHS | MODEL | {"seed": (0, 7), "n_images": (2, 13)},
    "mnist/dictionary": {"model": ("mnist-1000",) * 2, "digit": (0, 9), "seed": (0, 7), "n_generated": (10, 25)},
    "mnist/interpolation": {"data": ("digits", "mnist"), "n_train": (50, 60), "n_test": (1, 5), "faces": (1, 3),
                            "burn_in": (0, 3), "seed": (0, 7)},
    "mnist/error": LIVE | {"n_train": (50, 60), "n_test": (1, 13)},
    "mnist/coding": LENGTHS | MODEL | {"n_images": (2, 13), "seed": (0, 7)},
    "mnist/best": LIVE | {"n_learn": (4, 20), "n_train": (50, 60)},
    "caltech/faces": SCALE | {"pictures": (1, 2), "atoms": (1, 7), "model": ("caltech-faces",) * 2, "picture": (0, 5)},
    "caltech/classes": SCALE | {"stage": ("pretrained", "refined"), "model": ("caltech-revolver", "caltech-ketch"),
                                "picture": (0, 5)},
    "caltech/accuracy": SCALE | LENGTHS | {"classes": (["ketch", "revolver"], ["pyramid", "ketch", "revolver"]),
                                           "n_images": (1, 6), "seed": (0, 7)},
    "your-images": {"patches": (15, 20), "sweeps": ([0, 1], [2, 3]), "new_sweeps": ([0, 1], [2, 3]),
                    "n_digits": (50, 70), "seed": (0, 7)},
    "performance": {"data": ("digits", "mnist"), "n_images": (1, 5), "sizes": ([8], [1, 2, 16]), "warm_up": (0, 2),
                    "seed": (0, 7)},
}
#: words that are none, beside the number below each smallest one
WORDS = {"verdicts": ["x"], "statuses": ["x"], "model_name": "x", "scale": "x", "stage": "x", "faithful": 1.5,
         "pool": [0, 1], "map_size": [3], "noises": [], "sizes": [], "classes": ["x"]}
#: by the page: the functions that it calls refuse them, by these names
NOT_CHECKED = {"seed", "data", "model", "burn_in", "collect", "warm_up", "new_sweeps", "noise_precision",
               "weight_precision", "refine_noise"}
#: a few seconds each
SHORT = ("intro", "claims", "notation", "model/depth", "inference/gibbs", "caltech/faces", "caltech/classes",
         "caltech/accuracy")


def pages(short):
    return [page if page in short else pytest.param(page, marks=pytest.mark.slow) for page in notebooks.chapters()]


def faults(page, changes):
    """Tables without an entry, and lines without a word, which a page shows where it has nothing to say.

    Its cells run in this process, where everything is imported; nbval runs them in a kernel.
    """
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.reset()
    for number, cell in enumerate(cells_of(page)):
        own = changes if "parameters" in cell.metadata.get("tags", []) else {}
        source = "\n".join([cell.source, *(f"{name} = {value!r}" for name, value in own.items())])
        with shell.builtin_trap, shell.display_trap, capture_output() as shown:
            shell.run_cell(source).raise_error()
        if shown.stdout and not shown.stdout.strip():
            yield f"cell {number}: an empty line"
        for output in shown.outputs:
            for table in BeautifulSoup(output.data.get("text/html", ""), "html.parser").find_all("table"):
                if not any(entry.get_text(strip=True) for entry in table.find_all("td")):
                    yield f"cell {number}: an empty table"


@pytest.fixture
def nothing_there(tmp_path, monkeypatch):
    """No record, no data set, nothing in the user's cache."""
    for name in ("GDD_RESULTS", "GDD_DATA", "XDG_CACHE_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.parametrize("page", pages(SHORT))
def test_without_records(page, nothing_there):
    assert [*faults(page, QUICK.get(page, {}))] == []


@pytest.mark.parametrize("which", [0, 1], ids=["smallest", "another"])
@pytest.mark.parametrize("page", pages(["notation", "caltech/accuracy", "caltech/faces"]))
def test_at_other_values(page, which):
    changes = {name: values[which] for name, values in VALUES[page].items()}
    missing = {one.dataset for one in datasets.inventory() if one.path is None}
    if changes.get("data") in missing:
        pytest.skip(f"{changes['data']} is not on this machine")
    assert [*faults(page, changes)] == []


@pytest.mark.parametrize("page", notebooks.chapters())
def test_every_parameter_is_tried(page):
    assert parameters_of(page).keys() == VALUES[page].keys()


@pytest.mark.parametrize("page", notebooks.chapters())
def test_below_the_smallest_value_is_a_sentence_before_any_work(page):
    known = parameters_of(page)
    for name in known.keys() - NOT_CHECKED:
        smallest = VALUES[page][name][0]
        if smallest == [0, 1]:  # lengths, which the estimator refuses
            continue
        wrong = WORDS[name] if name in WORDS else smallest - 1
        with pytest.raises(GddError, match=f"{name}.* given.* needed"):
            exec(checks_of(page), vars(checks) | known | {name: wrong})
    exec(checks_of(page), vars(checks) | {name: values[0] for name, values in VALUES[page].items()})


def test_a_page_that_contradicts_itself_is_not_built(monkeypatch, tmp_path):
    text = notebooks.text_path("notation").read_text(encoding="utf-8")
    begin = text[: text.index("```{code-cell}")]
    cells = ["n = 1", "from gdd_book.pages.expected import expect\n\nexpect(n == 1, 'n is 1')"]
    tags = [":tags: [parameters]\n\n", ""]
    body = "\n".join(f"```{{code-cell}} ipython3\n{tag}{cell}\n```\n" for tag, cell in zip(tags, cells, strict=True))
    (tmp_path / "one.md").write_text(begin + body)
    monkeypatch.setattr(notebooks, "BOOK", tmp_path)
    notebooks.execute("one")
    assert any("not so that n is 1." in str(cell.get("outputs")) for cell in notebooks.execute("one", {"n": 2}).cells)
    (tmp_path / "one.md").write_text(begin + body.replace("n = 1", "n = 3"))
    with pytest.raises(GddError, match=f"chapter one: {expected.UNLIKE}n is 1"):
        notebooks.execute("one")


def cells_of(page):
    return [cell for cell in jupytext.read(notebooks.text_path(page)).cells if cell.cell_type == "code"]


def parameters_of(page):
    """A chapter's parameters, as it has them."""
    (cell,) = [cell for cell in cells_of(page) if "parameters" in cell.metadata.get("tags", [])]
    return {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(cell.source).body}


def checks_of(page):
    """Lines after a chapter's parameters that refuse what they cannot be."""
    cells = cells_of(page)
    (at,) = [number for number, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", [])]
    lines = cells[at + 1].source.splitlines()
    last = max(number for number, line in enumerate(lines) if "check_" in line)
    return "\n".join(lines[: last + 1])
