"""Runs killed with kill -9 inside their writes: each goes on, and ends at the very same bits."""

import signal
from multiprocessing import get_context
from pathlib import Path

import pytest
from chain_to_kill import PLACES, child, run

#: every process begins as a copy of one that has imported everything and computed nothing
CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["chain_to_kill"])


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The server that the processes are copied from looks for modules where this variable says."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")


def end(*arguments):
    """Let a process end; return how it ended, and the digest of its chains if it came to that."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=child, args=(theirs, *arguments))
    process.start()
    process.join()
    return process.exitcode, ours.recv() if ours.poll() else None


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_run_killed_inside_its_writes_ends_at_the_same_bits(tmp_path, place):
    """Five times, in each of its three chains of 12 sweeps, first inside the very first write that has the place."""
    for write in (1, 4, 14, 14, 3):
        assert end(tmp_path, 8, place, write) == (-signal.SIGKILL, None)
    assert end(tmp_path, 8) == (0, run(None, 8))
    assert len({path.name for path in tmp_path.glob("*.joblib")}) == 3  # three chains
    assert {path.suffix for path in tmp_path.glob(".*")} <= {".part"}  # of the killed, removed in an hour
