"""Runs killed with kill -9, at random moments and inside writes: each goes on, and ends at the very same bits."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from chain_to_kill import PLACES, run

SCRIPT = Path(__file__).with_name("chain_to_kill.py")


def begin(folder, length, *place):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), str(length), *map(str, place)], stdout=subprocess.PIPE, text=True
    )


def kill_after(process, sweeps, seconds):
    """Kill a run some time after so many of its sweeps; return what it said."""
    said = []
    while said.count("sweep\n") < sweeps and (line := process.stdout.readline()):
        said.append(line)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    return said + process.stdout.readlines()


def kill_again_and_again(folder, length, at_random, inside, seed):
    """Kill so many stretches of one run, then let it end; return the digest and a line about every stretch.

    Sweeps between kills are such that the kills fall all over the run's three chains.
    """
    generator = np.random.default_rng(seed)
    kills = generator.permutation(["" for _ in range(at_random)] + [PLACES[i % len(PLACES)] for i in range(inside)])
    reach, story = max(2, int(2 * 0.8 * 4.5 * length / len(kills))), []
    for place in kills:
        if place:
            process = begin(folder, length, place, generator.integers(2, 5))
            said = process.stdout.readlines()
        else:
            process = begin(folder, length)
            said = kill_after(process, generator.integers(1, reach), generator.uniform(0, 0.05))
        assert process.wait() == -signal.SIGKILL, f"ended before it was killed, having said {said[-1:]}"
        starts = [line.strip() for line in said if line != "sweep\n"]
        left = sorted(path.name for path in folder.glob(".*.part"))
        story.append(f"{' -> '.join(starts) or 'beginning'}; {said.count('sweep' + chr(10))} sweeps; {place}; {left}")
    with begin(folder, length) as process:
        *_, digest = process.stdout.read().split()
    assert process.returncode == 0
    return digest, story


def check(folder, length, at_random, inside, seed=0):
    digest, story = kill_again_and_again(folder, length, at_random, inside, seed)
    print(f"\n{len(story)} kills, {inside} of them inside a write", *story, sep="\n  ")
    assert digest == run(None, length)
    assert len({path.name for path in folder.glob("*.npz")}) == 6  # three chains, each with the one before
    assert not list(folder.glob(".*"))


def test_three_kills_one_inside_a_write(tmp_path):
    check(tmp_path, length=12, at_random=2, inside=1)


@pytest.mark.slow
def test_twenty_five_kills_ten_inside_a_write(tmp_path):
    check(tmp_path, length=60, at_random=15, inside=10)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_every_place_inside_the_very_first_write(tmp_path, place):
    process = begin(tmp_path, 4, place, 1)
    process.communicate()
    # there is nothing to rename to the one before: only one rename
    assert process.returncode == (0 if place in PLACES[3:] else -signal.SIGKILL)
    with begin(tmp_path, 4) as process:
        assert process.stdout.read().split()[-1] == run(None, 4)
