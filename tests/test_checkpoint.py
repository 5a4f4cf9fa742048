"""Checkpoints that are damaged, of another version, or cannot be written: a clear error, and what was there stays."""

import errno
import os

import numpy as np
import pytest
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


@pytest.mark.parametrize("done", [1, 3])
def test_shards_write_the_file_of_one_process_and_read_their_own_images(tmp_path, done):
    """Shards of 1, 3 and 2 images write; one of all, and two of 4 and 2, read."""
    path, chain, parts = tmp_path / "layer1.joblib", chain_state(done), []
    chain = chain._replace(best=None if done < 3 else chain.best)

    def part(cut, state):
        local = state.local
        return state._replace(local=local._make(array[cut] if len(array) == 6 else array for array in local))

    def last_writes(respond, value):
        parts.append(value)
        return respond(parts)[-1] if len(parts) == 3 else None

    for cut in (slice(0, 1), slice(1, 4), slice(4, 6)):
        own = chain._replace(state=part(cut, chain.state), best=chain.best and part(cut, chain.best))
        write(path, owner(), own, LayerData(DATA.images[cut], shard=Shard(cut.start, 6, last_writes)))
    assert names(tmp_path) == ["layer1.joblib"] and same(read(path, owner(), DATA), chain)
    for number, cut in enumerate((slice(0, 4), slice(4, 6))):
        shard = Shard(cut.start, 6, lambda respond, _, number=number: respond([4, 2])[number])
        found = read(path, owner(), LayerData(DATA.images[cut], shard=shard))
        assert same(found.state, part(cut, chain.state)) and same(found.best or (), found.state if done == 3 else ())
