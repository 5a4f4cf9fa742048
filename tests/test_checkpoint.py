"""Checkpoints that are damaged, of another version, or cannot be written: a clear error, and what was there stays."""

import errno
import os

import numpy as np
import pytest
from agreement import largest_file
from tiny import layer

from gdd.base.checks import GddError
from gdd.model.layer import draw_state
from gdd.model.spec import ChainSpec, layer_shape
from gdd.model.state import LayerData, Shard
from gdd.sampler.checkpoint import ChainState, describe_chain, read, write


def chain_state(done=2, images=6):
    """A chain after some sweeps; its numbers mean nothing, but have to come back."""
    spec = layer(3)
    state = draw_state(images, spec, layer_shape(spec, (7, 7), 1), np.random.default_rng(done))
    return ChainState(done, state, state, -1.5, {"residual": np.full(done, 0.25), "steps": np.ones((done, 2))}, 7.5)


DATA = LayerData(np.zeros((6, 1, 7, 7)))


def owner():
    return describe_chain(DATA, (layer(3), ChainSpec(burn_in=2, collect=1, seed=3)), 0)


def leaves(part):
    part = tuple(part[name] for name in sorted(part)) if isinstance(part, dict) else part
    return [leaf for item in part for leaf in leaves(item)] if isinstance(part, tuple) else [part]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_goes_in_comes_out(tmp_path):
    path = tmp_path / "layer1.joblib"
    assert read(path, owner(), DATA) is None
    write(path, owner(), chain_state(), DATA)
    assert same(read(path, owner(), DATA), chain_state())


def test_the_one_before_is_read_where_the_last_one_is_missing(tmp_path):
    """A process killed between the two renames leaves this."""
    path = tmp_path / "layer1.joblib"
    write(path, owner(), chain_state(1), DATA)
    write(path, owner(), chain_state(2), DATA)
    path.unlink()
    assert same(read(path, owner(), DATA), chain_state(1))


def test_damage_anywhere_is_refused(tmp_path):
    """Cut at any length, or with any byte changed."""
    path = tmp_path / "layer1.joblib"
    write(path, owner(), chain_state(1), DATA)
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    damaged = [whole[:length] for length in generator.integers(0, len(whole), 100)]
    for place in generator.integers(0, len(whole), 300):
        changed = bytearray(whole)
        changed[place] ^= int(generator.integers(1, 256))
        damaged.append(bytes(changed))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(GddError, match=f"checkpoint: {path} is not a whole checkpoint"):
            read(path, owner(), DATA)
        assert path.read_bytes() == content


def test_what_is_no_checkpoint_of_this_version_is_refused_and_left(tmp_path):
    path = tmp_path / "layer1.joblib"
    np.savez(path.open("wb"), owner="ab" * 32, done=3)  # as those of earlier versions
    before = path.read_bytes()
    with pytest.raises(GddError, match="not a whole checkpoint of this version; .*--restart"):
        read(path, owner(), DATA)
    assert path.read_bytes() == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_at_the_end_of_a_write_keeps_the_last_one(tmp_path, monkeypatch, call):
    path = tmp_path / "layer1.joblib"
    write(path, owner(), chain_state(1), DATA)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(GddError, match="cannot write.*No space left on device.*kept.*free space"):
        write(path, owner(), chain_state(2), DATA)
    assert names(tmp_path) == ["layer1.joblib"]
    assert same(read(path, owner(), DATA), chain_state(1))


def test_a_limit_on_the_file_keeps_the_last_one(tmp_path):
    path = tmp_path / "layer1.joblib"
    write(path, owner(), chain_state(1), DATA)
    with largest_file(100_000), pytest.raises(GddError, match="^checkpoint: cannot write"):
        write(path, owner(), chain_state(2, images=4000), DATA)
    assert names(tmp_path) == ["layer1.joblib"]
    assert same(read(path, owner(), DATA), chain_state(1))


def test_shards_of_any_sizes_read_what_those_of_others_wrote(tmp_path):
    """Three processes of 1, 3 and 2 images write twice; one of all, and two of 4 and 2, read; old files of parts go."""
    path, cuts = tmp_path / "layer1.joblib", (slice(0, 1), slice(1, 4), slice(4, 6))
    places = [(cut.start, cut.stop - cut.start) for cut in cuts]

    def part(cut, state):
        local = state.local
        own = [array[cut] if len(array) == 6 else array for array in local]
        return state._replace(local=local._make(own))

    def answer(combine, value):
        return places if combine is list else None  # as the others have said theirs

    for done in (1, 2, 3):
        at = chain_state(done)
        for cut in (cuts[1], cuts[2], cuts[0]):  # the first one ends
            own = at._replace(state=part(cut, at.state), best=None if done < 3 else part(cut, at.best))
            write(path, owner(), own, LayerData(DATA.images[cut], shard=Shard(cut.start, 6, answer)))
    assert {name for name in names(tmp_path) if "sweep1" in name} == set() and len(names(tmp_path)) == 8
    assert same(read(path, owner(), DATA), chain_state(3))
    for cut in (slice(0, 4), slice(4, 6)):
        found = read(path, owner(), LayerData(DATA.images[cut], shard=Shard(cut.start, 6, answer)))
        assert same(found.state, part(cut, chain_state(3).state)) and same(found.best, found.state)
    path.unlink()
    assert read(path, owner(), DATA).best is None and read(path, owner(), DATA).done == 2
    next(tmp_path.glob("*.sweep2.image1*")).unlink()
    with pytest.raises(GddError, match="names layer1.sweep2.image1.joblib, which is not there"):
        read(path, owner(), DATA)
