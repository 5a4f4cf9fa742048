"""Ctrl-C ends a run while a compiled loop is busy, and says how to go on.

That of every loop: all are compiled by `gdd.base.compiling.kernel`, as tests/test_compiling.py proves.
"""

import signal
import subprocess
import sys
import textwrap
import time

#: an experiment that is one call of a compiled loop: half a minute or more on any machine
BUSY = """
    import signal, sys
    from gdd_book import run
    from gdd_book.benchmarks import harness
    from gdd_book.experiments.common import experiment

    @experiment("busy", {"n": 1})
    def busy(parameters, run):
        harness.many_uniforms(1)
        print("busy", flush=True)
        harness.many_uniforms(10**10)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # what started us may have it ignored
    sys.exit(run.main(["run", "busy", "-p", "n", "2"]))
"""


def test_ctrl_c_within_a_compiled_loop(tmp_path, monkeypatch):
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(BUSY)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    _, said = process.communicate()
    print(f"ended {time.monotonic() - sent:.3f} s after Ctrl-C")
    assert process.returncode == 130
    assert said.strip().splitlines()[-1].strip() == "gdd run busy -p n 2"
    assert time.monotonic() - sent < 10  # a loop that did not let go would have taken more than twice that
