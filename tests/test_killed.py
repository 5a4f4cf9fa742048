"""Runs killed with kill -9, at random moments and inside writes: each goes on, and ends at the very same bits."""

import signal
import time
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from chain_to_kill import PLACES, child, run

#: every process begins as a copy of one that has imported everything and computed nothing
CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["chain_to_kill"])


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The server that the processes are copied from looks for modules where this variable says."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")


def begin(folder, length, *place):
    """Start a process; return it and the pipe that it speaks through."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=child, args=(theirs, folder, length, *place))
    process.start()
    theirs.close()
    return process, ours


def listen(pipe, sweeps=np.inf):
    """What a process says until it has made so many sweeps, each of which is answered, or ends."""
    said = []
    with suppress(EOFError, OSError):
        while said.count("sweep") < sweeps:
            said.append(pipe.recv())
            if said[-1] == "sweep":
                pipe.send("go on")
    return said


def end(process, pipe):
    """Let a process end; return what it said and how it ended."""
    said = listen(pipe)
    process.join()
    return said, process.exitcode


def kill_again_and_again(folder, length, at_random, inside, seed):
    """Kill so many stretches of one run, then let it end; return the digest and a line about every stretch.

    Sweeps between kills are such that the kills fall all over the run's three chains.
    """
    generator = np.random.default_rng(seed)
    kills = generator.permutation(["" for _ in range(at_random)] + [PLACES[i % len(PLACES)] for i in range(inside)])
    total = 3 * (length + length // 2)
    reach, story = int(2 * (0.85 * total - 3 * inside) / at_random), []
    for place in kills:
        if place:
            said, code = end(*begin(folder, length, place, int(generator.integers(2, 5))))
        else:
            process, pipe = begin(folder, length)
            said, begun = listen(pipe, generator.integers(1, reach)), time.monotonic()
            said += listen(pipe, 1)
            time.sleep(generator.uniform(0, 1.2) * (time.monotonic() - begun))  # within a write, a sweep, or waiting
            process.kill()
            more, code = end(process, pipe)
            said += more
        assert code == -signal.SIGKILL, f"ended before it was killed, having said {said[-1:]}"
        starts = [line for line in said if line != "sweep"]
        left = [path.name for path in folder.glob(".*.part")]
        story.append(f"{' -> '.join(starts) or 'beginning'}; {said.count('sweep')} sweeps; {place or 'random'}; {left}")
    said, code = end(*begin(folder, length))
    assert code == 0
    return said[-1], story


def check(folder, length, at_random, inside, seed=0):
    digest, story = kill_again_and_again(folder, length, at_random, inside, seed)
    print(f"\n{len(story)} kills, {inside} of them inside a write", *story, sep="\n  ")
    assert digest == run(None, length)
    assert len({path.name for path in folder.glob("*.joblib")}) == 6  # three chains, each with the one before
    assert {path.suffix for path in folder.glob(".*")} <= {".part"}  # of the killed, removed in an hour


@pytest.mark.slow
def test_three_kills_one_inside_a_write(tmp_path):
    check(tmp_path, length=12, at_random=2, inside=1, seed=32)  # one in each of the three chains


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_every_place_inside_the_very_first_write(tmp_path, place):
    _, code = end(*begin(tmp_path, 4, place, 1))
    # there is nothing yet to keep as the one before, so only one rename
    assert code == (0 if place in PLACES[3:] else -signal.SIGKILL)
    said, code = end(*begin(tmp_path, 4))
    assert (said[-1], code) == (run(None, 4), 0)
