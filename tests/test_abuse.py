"""Bad arguments to every public function: a result or one of our own errors, never anything else.

``-m slow -k abuse`` tries more than ten thousand cases and prints how each function answered
(tests/test_abuse_totals.py); files and command lines have a few in the ordinary run too. Cases are generated alike in
every run.
"""

from collections import Counter

import pytest
from abuse_judge import ANSWERS, GIVEN, judge
from abuse_targets import NAMES, targets
from hypothesis import given
from hypothesis import strategies as st

from gdd.base import axes

EXAMPLES = 230
#: the chains of these shapes alone take minutes to compile
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_machine(monkeypatch):
    """A machine of 256 MB: what needs more must be refused, on every machine alike."""
    monkeypatch.setattr(axes, "memory", lambda: 2**28)


@pytest.mark.parametrize("name", NAMES)
def test_bad_arguments(name):
    target, counted = targets()[name], ANSWERS.setdefault(name, Counter())
    if target.right() is not None:  # right arguments must do
        assert judge(lambda: target.call(**target.right()), name, target.nan) == "result"
    chosen = st.lists(st.sampled_from(sorted(target.wrong)), min_size=1, max_size=2, unique=True)

    @GIVEN(max_examples=EXAMPLES)
    @given(st.data())
    def run(data):
        wrong = {key: data.draw(target.wrong[key], key) for key in data.draw(chosen, "replaced")}
        arguments = (target.right() or {}) | wrong
        counted[judge(lambda: target.call(**arguments), name, target.nan)] += 1

    run()


def test_every_name_has_a_target():
    assert list(NAMES) == list(targets())
