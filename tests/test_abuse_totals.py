"""How every function answered in the slow abuse tests; by its name, this file comes after theirs."""

from collections import Counter

import pytest
from abuse_judge import ANSWERS


@pytest.mark.slow
def test_ten_thousand_cases_were_tried(capsys):
    total = sum(ANSWERS.values(), Counter())
    with capsys.disabled():
        print(f"\n{'function':28}{'results':>9}{'own errors':>12}")
        for name, counter in {**ANSWERS, "all": total}.items():
            print(f"{name:28}{counter['result']:9}{counter['own error']:12}")
    assert total.total() >= 10_000
    assert all(counter["own error"] for counter in ANSWERS.values()), "a function that refused nothing was not tried"
