"""Checkpoints that are damaged, of another version, or cannot be written: a clear error, and what was there stays."""

import errno
import io
import os
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.testing import assert_equal
from tiny import layer

from gdd.base.checks import GddError
from gdd.model.layer import draw_state
from gdd.model.spec import ChainSpec, layer_shape
from gdd.model.state import LayerData, Shard
from gdd.sampler.checkpoint import ChainState, describe_chain, read, write


def chain_state(done):
    """A chain after some sweeps; its numbers mean nothing, but have to come back."""
    spec = layer(3)
    state = draw_state(6, spec, layer_shape(spec, (7, 7), 1), np.random.default_rng(done))
    return ChainState(done, state, state, -1.5, {"residual": np.full(done, 0.25), "steps": np.ones((done, 2))}, 7.5)


DATA = LayerData(np.zeros((6, 1, 7, 7)))
OWNER = describe_chain(DATA, (layer(3), ChainSpec(burn_in=2, collect=1, seed=3)), 0)


def test_damage_anywhere_is_refused_and_left(tmp_path):
    """Cut at any length, or with any byte changed; likewise what earlier versions wrote."""
    path, generator, earlier = tmp_path / "layer1.joblib", np.random.default_rng(0), io.BytesIO()
    assert read(path, OWNER, DATA) is None
    write(path, OWNER, chain_state(1), DATA)
    assert_equal(read(path, OWNER, DATA), chain_state(1))
    np.savez(earlier, owner="ab" * 32, done=3)
    whole = path.read_bytes()
    damaged = [whole[:length] for length in generator.integers(0, len(whole), 100)]
    for place in generator.integers(0, len(whole), 300):
        changed = bytearray(whole)
        changed[place] ^= int(generator.integers(1, 256))
        damaged.append(bytes(changed))
    for content in (*damaged, earlier.getvalue()):
        path.write_bytes(content)
        with pytest.raises(GddError, match=f"checkpoint: {path} is not a whole .* of this version; .*--restart"):
            read(path, OWNER, DATA)
        assert path.read_bytes() == content


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_at_the_end_of_a_write_keeps_the_last_one(tmp_path, monkeypatch, call):
    path = tmp_path / "layer1.joblib"
    write(path, OWNER, chain_state(1), DATA)
    monkeypatch.setattr(os, call, Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(GddError, match="cannot write.*No space left on device.*kept.*free space"):
        write(path, OWNER, chain_state(2), DATA)
    assert [*tmp_path.iterdir()] == [path]
    assert_equal(read(path, OWNER, DATA), chain_state(1))


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
        write(path, OWNER, own, LayerData(DATA.images[cut], shard=Shard(cut.start, 6, last_writes)))
    assert [*tmp_path.iterdir()] == [path]
    assert_equal(read(path, OWNER, DATA), chain)
    for number, cut in enumerate((slice(0, 4), slice(4, 6))):
        shard = Shard(cut.start, 6, lambda respond, _, number=number: respond([4, 2])[number])
        found = read(path, OWNER, LayerData(DATA.images[cut], shard=shard))
        assert_equal((found.state, found.best), (part(cut, chain.state), part(cut, chain.state) if done == 3 else None))
