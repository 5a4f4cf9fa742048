"""The list of errata: every number that is cited has an entry, every entry a section of its page and evidence.

What some entries say with a number is proved here, where no other test does.
"""

import re
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from scipy import signal, stats

from gdd.model import layer as model
from gdd.model import spec
from gdd.model.pooling import repeat_blocks, spread
from gdd_book import paper_values
from gdd_book.checks import enumeration
from gdd_book.data import sources
from gdd_book.pages import lists, notebooks


def test_every_number_that_is_cited_has_an_entry_and_a_section():
    known = [entry.number for entry in lists.errata()]
    assert sorted(known) == sorted(f"P{n}" for n in range(1, len(known) + 1))
    for folder, ending in (("gdd", "py"), ("book", "md"), ("book", "yml"), ("tests", "py")):
        for path in (notebooks.ROOT / folder).rglob(f"*.{ending}"):
            cited = re.findall(r"\bP[1-9][0-9]?\b", path.read_text(encoding="utf-8"))
            assert {*cited} <= {*known}, path
    page = notebooks.text_path(lists.ERRATA_PAGE).read_text(encoding="utf-8")
    assert re.findall(r"^\((p\d+)\)=\n### P\d+: .", page, re.MULTILINE) == [number.lower() for number in known]


@pytest.mark.parametrize("entry", lists.errata(), ids=lambda entry: entry.number)
def test_evidence_of_an_entry_is_there(entry):
    for page in entry.pages:
        assert re.search(rf"\b{entry.number}\b", notebooks.text_path(page).read_text(encoding="utf-8")), page
    for test in entry.tests:
        name, _, function = test.partition("::")
        source = (notebooks.ROOT / "tests" / name).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in source


def test_a_precision_for_each_weight_is_out_of_reach():
    """P7: nearly all of the printed prior lies below the smallest number that a computer tells from zero."""
    prior = spec.Precision()
    assert stats.gamma(prior.shape, scale=1 / prior.rate).cdf(np.finfo(float).tiny) > 0.999


def test_combined_prior_is_not_the_two_steps():
    """P25: what a Dirichlet over B + 1 outcomes says about a block being active, against Eq. 2 with Sec. 4."""
    layer = spec.LayerSpec(32, (1, 1), (2, 2))
    one = replace(spec.layer_shape(layer, (2, 2), 1), atoms=1)
    empty = np.full((1, 1, 1, 1), enumeration.EMPTY)
    assert np.exp(model.log_positions(empty, layer, one)) == pytest.approx(1 / 5)
    a, b = spec.LayerSpec(32, (1, 1)).beta
    assert b / (a + b) == pytest.approx(31 / 32)


def test_a_beta_with_one_bernoulli_is_a_constant():
    """P26: with a pi of its own each, what all other elements do has no say in one of them."""
    layer = spec.LayerSpec(5, (1, 1))
    shape = spec.layer_shape(layer, (2, 2), 1)
    full, none = np.zeros((1, 5, *shape.grid), int), np.full((1, 5, *shape.grid), enumeration.EMPTY)
    odds = []
    for z in (full, none):
        on, off = z.copy(), z.copy()
        on[0, 0, 0, 0], off[0, 0, 0, 0] = 0, enumeration.EMPTY
        odds.append(model.log_positions(on, layer, shape) - model.log_positions(off, layer, shape))
    np.testing.assert_allclose(odds, np.log(1 / 4))


def printed_convolution(d, w):
    """Size, index and range as in the supplement, with zero wherever the atom is not."""
    out = np.zeros([n + m + 1 for n, m in zip(d.shape, w.shape, strict=True)])
    for i, j in np.ndindex(*out.shape):
        for p, q in np.ndindex(*w.shape):
            a, b = i + w.shape[0] - p - 1, j + w.shape[1] - q - 1
            if 0 <= a < d.shape[0] and 0 <= b < d.shape[1]:
                out[i, j] += d[a, b] * w[p, q]
    return out


def test_printed_convolution_loses_rows():
    """P8: it is the full convolution without its first rows and columns, and the lemmas hold for the valid part too."""
    generator = np.random.default_rng(0)
    d, w = generator.standard_normal((4, 5)), generator.standard_normal((3, 2))
    full, found = signal.convolve(d, w), printed_convolution(d, w)
    np.testing.assert_allclose(found[:4, :5], full[2:, 1:])
    assert not found[4:].any() and not found[:, 5:].any()
    for mode in ("full", "valid"):
        for grow in (repeat_blocks, spread):
            right = signal.convolve(grow(d, (2, 3)), spread(w, (2, 3)), mode)
            np.testing.assert_allclose(grow(signal.convolve(d, w, mode), (2, 3)), right, atol=1e-12)


def test_columns_spread_by_rows_break_the_lemma():
    """P28: with n_x for n_y the sizes of lemma 4 differ, unless blocks are square."""
    generator = np.random.default_rng(0)
    d, w = generator.standard_normal((4, 5)), generator.standard_normal((3, 2))
    for pool, holds in (((2, 2), True), ((2, 3), False)):
        left = repeat_blocks(signal.convolve(d, w), pool)
        right = signal.convolve(repeat_blocks(d, pool), spread(w, (pool[0], pool[0])))
        assert (left.shape == right.shape and np.allclose(left, right)) == holds


def test_test_images_of_caltech_101_include_the_background():
    """P13: on the archive itself, where it is there."""
    archive = sources.files_of("caltech101")[0].path
    if archive is None or not tarfile.is_tarfile(archive):
        pytest.skip("the archive is not here")
    with tarfile.open(archive) as pictures:
        names = [name for name in pictures.getnames() if name.endswith(".jpg")]
    classes = {name.split("/")[-2] for name in names}
    tested = paper_values.fact("caltech101_test_images")["value"]
    assert len(classes) == 102
    assert tested == len(names) - 30 * 101
