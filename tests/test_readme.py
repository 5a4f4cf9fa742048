"""Lines of Python of the README and of the API reference run as they stand, at a small size; what is named exists."""

import re
from contextlib import chdir
from pathlib import Path

import make_readme_figure
import numpy as np

import gdd
from gdd_book import experiments, run
from gdd_book.pages import notebooks

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)
LOADED, STEPS = re.findall(r"```python\n(.*?)```", notebooks.text_path("api").read_text(encoding="utf-8"), re.S)


def run_smaller(source, changes):
    """Names that the lines define, run with what is written in them changed."""
    for written, small in changes.items():
        assert written in source
        source = source.replace(written, small)
    exec(source, names := {})
    return names


def test_from_images_and_labels_to_an_error(capsys):
    run_smaller(BLOCKS[0], {"n=200": "n=60", "OneStepFeatures()": "OneStepFeatures(sweeps=(2, 1), atoms=6)"})
    share = float(re.search(r"([\d.]+) % of the new digits", capsys.readouterr().out)[1])
    assert share < 60  # guessing: 90


def test_the_lines_give_features_of_the_new_images(tmp_path):
    with chdir(tmp_path):
        made = run_smaller(BLOCKS[1], {"n=500": "n=12", "n=100": "n=3", "(60, 20)": "(1, 1)"})
        assert Path("atoms.png").stat().st_size > 1000
        np.testing.assert_array_equal(gdd.load("digits.nc").transform(made["new"]), made["features"])
    assert made["features"].shape == (3, 160 * 2 * 2) and np.isfinite(made["features"]).all()


def test_a_trained_model_can_be_used():
    with chdir(ROOT):
        names = run_smaller(LOADED, {"n=100": "n=3"})
    assert names["drawn"].shape == (10, 1, 28, 28) and names["codes"].sizes["image"] == 3
    assert names["maps"].isel(image=names["maps"].label.values == 3).sizes["image"] == 10


def test_figure_can_be_drawn_and_is_small():
    assert len(make_readme_figure.draw().axes) == 4
    name = re.search(r"!\[[^]]*\]\(([^)]+)\)", TEXT)[1]
    assert ROOT / name == make_readme_figure.FIGURE
    assert 5e3 < make_readme_figure.FIGURE.stat().st_size < 200e3


def test_commands_name_what_exists():
    chapters = re.findall(r"gdd chapter book/(\S+)\.md", TEXT)
    runs = re.findall(r"gdd run (\S+) --scale (\S+)", TEXT)
    assert chapters
    assert runs
    assert set(chapters) <= set(notebooks.chapters())
    for name, scale in runs:
        assert experiments.defaults(name, scale)
    parser = run._parser()
    for command in re.findall(r"^ {4}gdd (.*?)(?:  +#.*)?$", TEXT, re.M):
        parser.parse_args(command.split())


def test_the_parts_called_alone():
    smaller = {"n=500": "n=12", "n=100": "n=3"}
    smaller |= dict.fromkeys(("burn_in=60, collect=20", "burn_in=30, collect=10"), "burn_in=1, collect=1")
    names = run_smaller(STEPS, smaller)
    assert names["atoms"].dims == ("atom", "plane", "atom_row", "atom_col")
    assert dict(names["codes"].ml_sample.sizes) == {"image": 3, "atom": 160, "row": 2, "col": 2}
