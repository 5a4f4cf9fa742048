"""Chains: stopped and resumed to the same bits, the best sample kept, pruning in burn-in, foreign checkpoints."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agreement import StopAt, arrays_of
from tiny import draw_from, layer

import gdd
from gdd.base.checks import GddError
from gdd.model.layer import log_joint, log_likelihood
from gdd.model.spec import ChainSpec, Pruning, layer_shape
from gdd.model.state import LayerData
from gdd.sampler import chain as chains
from gdd.sampler import checkpoint
from gdd.sampler.pretrain import fit_layer, initial_state, used_atoms

SIZE = (7, 7)
CHAIN = ChainSpec(burn_in=12, collect=6, seed=4, single_precision=False)


@pytest.fixture
def data():
    """Images drawn from a layer of two atoms; the chains below have four, so that pruning has something to do."""
    return draw_from(layer(2), SIZE, images=6, seed=8).data


def run(data, chain=CHAIN, atoms=4, folder=None, progress=None, **more):
    spec = replace(layer(atoms), **more)
    return fit_layer(data, spec, layer_shape(spec, SIZE, 1), chain, 0, folder, progress)


def assert_equal(one, other):
    np.testing.assert_equal(arrays_of(one.state), arrays_of(other.state))
    assert one.traces.equals(other.traces)
    assert one.spec == other.spec


@pytest.mark.parametrize("last", [1, 13])
@pytest.mark.parametrize("pruning", [None, Pruning(3, 2, 0.9)], ids=["all kept", "pruned"])
def test_stopped_and_resumed_is_the_same_chain(data, tmp_path, last, pruning):
    chain = replace(CHAIN, pruning=pruning)
    whole = run(data, chain)
    with pytest.raises(KeyboardInterrupt):
        run(data, chain, folder=tmp_path, progress=StopAt(last))
    assert_equal(run(data, chain, folder=tmp_path), whole)
    assert_equal(run(data, chain, folder=tmp_path), whole)  # a finished chain is read, not run
    assert (whole.spec.atoms < 4) == (pruning is not None)


def test_a_checkpoint_is_written_on_the_way(data, tmp_path, monkeypatch):
    """What kill -9 leaves behind: the last written checkpoint, from which the same chain follows."""
    monkeypatch.setattr(chains, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(chains, "SHARE_OF_WRITING", np.inf)
    written, write = [], checkpoint.write
    monkeypatch.setattr(checkpoint, "write", lambda p, *rest: (write(p, *rest), written.append(p.read_bytes())))
    whole = run(data, folder=tmp_path)
    assert len(written) == 1 + CHAIN.sweeps  # before the first sweep and after each, none twice
    (tmp_path / "layer1.joblib").write_bytes(written[6])
    assert_equal(run(data, folder=tmp_path), whole)
    assert not list(tmp_path.glob("*.part"))


def test_writing_takes_a_small_share_of_the_time(data, tmp_path, monkeypatch, clock):
    """Were a write to take an hour, the next one would have to wait for 20."""
    monkeypatch.setattr(chains, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    written, write = [], checkpoint.write

    def slow(path, owner, at, data):
        written.append(at.done)
        clock[0] += 3600.0
        write(path, owner, at, data)

    monkeypatch.setattr(checkpoint, "write", slow)
    run(data, folder=tmp_path)
    assert written == [0, 1, CHAIN.sweeps]


def test_seconds_of_a_chain_add_up_over_its_runs(data, tmp_path, monkeypatch, clock):
    monkeypatch.setattr(chains.time, "process_time", lambda: 2 * clock[0])

    class Watch(StopAt):
        def begin(self, stage, sweeps, done, seconds, owner):
            begun.append((done, seconds))

        def step(self, **_):
            clock[0] += 10.0
            super().step()

    begun = []
    for last in (7, 5):
        with pytest.raises(KeyboardInterrupt):
            run(data, folder=tmp_path, progress=Watch(last))
    run(data, folder=tmp_path, progress=Watch(100))
    again = run(data, folder=tmp_path, progress=Watch(100))
    # a sweep ends before the clock is moved: n sweeps of a run are seen to take 10 (n - 1) seconds
    assert begun == [(0, 0.0), (7, 60.0), (12, 100.0), (18, 150.0)]
    assert again.traces.attrs == {"seconds": 150.0, "cpu_seconds": 300.0}


@pytest.mark.parametrize(("change", "what"), [
    (lambda data: {"data": LayerData(data.images + 1e-9)}, "data is"),
    (lambda data: {"data": LayerData(data.images, np.ones(data.images.shape, bool))}, "data is"),
    (lambda data: {"chain": replace(CHAIN, seed=5)}, "ChainSpec.seed is 4 there, 5 here"),
    (lambda data: {"chain": replace(CHAIN, collect=7)}, "ChainSpec.collect is 6 there, 7 here"),
    (lambda data: {"pool": (3, 3)}, r"LayerSpec.pool is \[2, 2\] there, \[3, 3\] here"),
], ids=["data", "mask", "seed", "length", "spec"])
def test_a_foreign_checkpoint_is_refused_and_left(data, tmp_path, change, what):
    run(data, folder=tmp_path)
    path = tmp_path / "layer1.joblib"
    before = path.read_bytes()
    with pytest.raises(GddError, match=f"written by another chain: {what}.*name another folder"):
        run(**{"data": data, "folder": tmp_path} | change(data))
    assert path.read_bytes() == before


def test_a_checkpoint_of_other_code_is_refused_and_left(data, tmp_path, monkeypatch):
    """Be the chain finished or not: its numbers are not those of the code that would be named in a record."""
    monkeypatch.setattr(checkpoint, "code_checksum", lambda: "code of yesterday")
    with pytest.raises(KeyboardInterrupt):
        run(data, folder=tmp_path / "stopped", progress=StopAt(7))
    run(data, folder=tmp_path / "finished")
    monkeypatch.undo()
    for name in ("stopped", "finished"):
        before = (tmp_path / name / "layer1.joblib").read_bytes()
        with pytest.raises(GddError, match="made by other code: gdd/model, gdd/reference or gdd/s.*--restart"):
            run(data, folder=tmp_path / name, progress=StopAt(1))
        assert (tmp_path / name / "layer1.joblib").read_bytes() == before


def test_the_code_of_a_chain_is_that_of_model_and_sampler(tmp_path, monkeypatch):
    root = Path(gdd.__file__).parents[1]
    shutil.copytree(root / "gdd", tmp_path / "gdd", ignore=shutil.ignore_patterns("__pycache__", "*.nc"))
    monkeypatch.setattr(gdd, "__file__", str(tmp_path / "gdd" / "__init__.py"))
    code_checksum = checkpoint.code_checksum.__wrapped__  # past its cache
    sums = [code_checksum()]
    assert sums == [checkpoint.code_checksum()]
    for changed in ("gdd/sampler/sweep.py", "gdd/model/spec.py", "gdd/sampler/kernels/layer.py"):
        path = tmp_path / changed
        path.write_text(path.read_text() + "# edited\n")
        sums.append(code_checksum())
    assert len(set(sums)) == 4


def test_the_best_collected_sample_is_kept(data):
    fitted = run(data)
    likelihood = fitted.traces["log_likelihood"].values[0]
    assert likelihood.shape == (18,)
    best = log_likelihood(fitted.state, data, fitted.shape).sum()
    assert best == pytest.approx(likelihood[CHAIN.burn_in :].max(), rel=1e-9)
    place = CHAIN.burn_in + int(likelihood[CHAIN.burn_in :].argmax())
    joint = log_joint(fitted.state, data, fitted.spec, fitted.shape)
    assert joint == pytest.approx(fitted.traces["log_joint"].values[0, place], rel=1e-9)


def test_pruning_happens_in_burn_in_only(data):
    pruning = Pruning(start=3, every=1, share=0.999)
    atoms = run(data, replace(CHAIN, pruning=pruning), atoms=6).traces["atoms"].values[0]
    assert (atoms[:4] == 6).all() and atoms[CHAIN.burn_in] < 6 and (np.diff(atoms) <= 0).all()
    assert (atoms[CHAIN.burn_in :] == atoms[CHAIN.burn_in]).all()
    assert run(data, replace(CHAIN, pruning=replace(pruning, start=CHAIN.burn_in)), atoms=6).spec.atoms == 6


def test_which_atoms_go():
    active = np.array([100.0, 2.0, 60.0, 0.0])
    assert used_atoms(active, Pruning(share=0.05)).tolist() == [0, 2]
    assert used_atoms(active, Pruning(share=0.01)).tolist() == [0, 1, 2]
    assert used_atoms(active, Pruning(share=2.4)).tolist() == [0, 2]  # two stay at least
    assert used_atoms(np.zeros(3), Pruning()).tolist() == [0, 1, 2]  # no atom is used less than the others


def test_starts_differ_and_have_unit_norm(data):
    spec, shape = layer(4), layer_shape(layer(4), SIZE, 1)
    starts = [initial_state(data, spec, shape, replace(CHAIN, start=s), 0) for s in ("patches", "random")]
    for state in starts:
        np.testing.assert_allclose((state.shared.dictionary**2).sum(axis=(1, 2, 3)), 1.0)
        assert (state.local.z == -1).all()
    assert not np.allclose(starts[0].shared.dictionary, starts[1].shared.dictionary)
