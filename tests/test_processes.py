"""Work in several processes: what is told, what is left on disk, what is said when one fails or dies."""

import os

import pytest

from gdd.base.checks import GddError
from gdd_book.processes import run_tasks


def write_square(number, folder, say):
    """Tell a number, leave its square; 3 is refused, at 5 the process dies."""
    if number == 3:
        raise GddError("number: 3 given; another is needed")
    if number == 5:
        os._exit(7)
    say(number)
    (folder / str(number)).write_text(str(number**2))


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_and_what_is_told(jobs, tmp_path):
    told = []
    tasks = {f"task {n}": (n, tmp_path) for n in (1, 2, 4)}
    run_tasks(write_square, tasks, jobs, lambda *said: told.append(said))
    assert sorted(told) == [("task 1", 1), ("task 2", 2), ("task 4", 4)]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"1": "1", "2": "4", "4": "16"}
    run_tasks(write_square, {}, jobs, None)


def test_a_failure_and_a_death_are_said(tmp_path):
    with pytest.raises(GddError, match="task 3: number: 3 given"):
        run_tasks(write_square, {"task 3": (3, tmp_path), "task 1": (1, tmp_path)}, 2, lambda *_: None)
    with pytest.raises(GddError, match="ended with code 7 .task 5.; run again"):
        run_tasks(write_square, {"task 5": (5, tmp_path)}, 2, lambda *_: None)
