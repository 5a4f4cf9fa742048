"""Sums over images: the same bits for any partition, along a tree that a definition of three lines gives."""

import threading
from collections import namedtuple
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_equal

from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, Pruning, RefinementSpec
from gdd.model.state import LayerData, Shard
from gdd.sampler import chain as chains
from gdd.sampler import sums
from gdd.sampler.pretrain import pretrain_layers
from gdd.sampler.refine import fresh_start, run_joint_chain, start_from
from gdd.sampler.sums import BATCH, Node, add_images, add_up, append_node, tree_total

#: atoms of the size of MNIST's, whose kernels other tests have compiled; maps of 4 x 4 and 1 x 1
MODEL = ModelSpec((LayerSpec(3, (8, 8), (2, 2)), LayerSpec(2, (2, 2))), (11, 11)).with_fixed_precisions(25.0, 1.0)
CHAIN = ChainSpec(3, 2, 4)
FIXED = RefinementSpec(Precision(fixed=25.0))


class Stop(Exception):
    """Where a test ends a chain."""


class Table:
    """Where parts meet: threads, of which one runs at a time, as compiled loops must not run side by side."""

    def __init__(self, parts: int) -> None:
        self.said, self.heard, self.turns = [None] * parts, None, [0] * parts
        self.run, self.all = threading.Lock(), threading.Barrier(parts, timeout=60)

    def meet(self, number, respond, said):
        self.said[number] = said
        self.turns[number] += 1
        self.run.release()
        try:
            self.all.wait()
            if number == 0:
                self.heard = respond(list(self.said))
            self.all.wait()
        finally:
            self.run.acquire()
        return self.heard[number]

    @contextmanager
    def seat(self):
        self.run.acquire()
        try:
            yield
        except BaseException:
            self.all.abort()
            raise
        finally:
            self.run.release()


def in_parts(work, images, edges):
    """``work(shard, images of the shard)`` for the parts of images between these edges; what each gives."""
    table, found = Table(len(edges) - 1), [None] * (len(edges) - 1)

    def one(number, first, last):
        shard = Shard(first, len(images), lambda respond, said: table.meet(number, respond, said))
        with suppress(Stop, threading.BrokenBarrierError), table.seat():
            found[number] = work(shard, images[first:last])

    threads = [threading.Thread(target=one, args=(n, *pair)) for n, pair in enumerate(pairwise(edges))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(table.turns)) == 1
    return found


WHOLE = 5 * BATCH - 9
PARTITIONS = [(0, WHOLE), (0, 2 * BATCH, WHOLE), (0, BATCH, 2 * BATCH, 3 * BATCH, 4 * BATCH, WHOLE)]


def tree(values):
    """Sum of batches by definition: the largest power of two below their number, and the rest."""
    if len(values) == 1:
        return values[0]
    half = 1 << (len(values) - 1).bit_length() - 1
    return tree(values[:half]) + tree(values[half:])


@pytest.mark.parametrize("number", [1, 2, 3, 8, 13, 19])
def test_nodes_of_any_parts_give_the_tree(number):
    values = np.random.default_rng(number).standard_normal(number) * 10.0 ** np.arange(number)
    for edges in {(0, number), (0, number // 2, number), tuple(range(number + 1)), (0, number - 1, number)}:
        parts = []
        for first, last in pairwise(edges):
            nodes = []
            for n in range(first, last):
                append_node(nodes, Node(0, n, (values[n],)))
            assert len(nodes) <= 2 * number.bit_length()
            parts.append(nodes)
        assert tree_total(parts)[0] == tree(list(values))


Pair = namedtuple("Pair", ("one", "other"))


@pytest.mark.parametrize("edges", PARTITIONS)
def test_sums_over_images_do_not_depend_on_the_parts(edges):
    values = np.random.default_rng(0).standard_normal((edges[-1], 2)) * 1e8

    def of_part(shard, own):
        def run(item):
            for n, value in enumerate(own[item.images]):
                item.sums[0][n // item.images_per_accumulator] += value

        return np.concatenate([
            *add_up(Pair(np.zeros(2), np.zeros(1)), shard, len(own), run),
            *add_up(Pair(np.zeros(2), np.zeros(1)), shard, len(own), run, max_accumulators=sums.ACCUMULATORS),
            *add_up(Pair(np.zeros(2), np.zeros(1)), shard, len(own), run, max_accumulators=BATCH),
            add_images(shard, own, own[:, 0]),
        ])

    alone = of_part(Shard(), values)
    for found in in_parts(of_part, values, edges):
        np.testing.assert_array_equal(found, alone)
    np.testing.assert_allclose(alone[:2], values.sum(axis=0), rtol=1e-9)


# ---- whole chains
@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).standard_normal((PARTITIONS[0][-1], 1, 11, 11)).astype(np.float32) / 3


def stages(model, chain, refinement, fresh=False, folder=None):
    """Pretraining, and refinement from it or from nothing, of a shard."""

    def work(shard, own):
        own, mask = own if isinstance(own, tuple) else (own, None)
        data = LayerData(own, mask, shard)
        fitted = pretrain_layers(data, model, chain, folder)
        begun = fresh_start(data, model, chain, refinement) if fresh else start_from(fitted, refinement, chain)
        return fitted, run_joint_chain(begun, data, fitted.model, chain, refinement, folder)

    return work


def assert_same(alone, parts):
    """Every array of the states, the images' ones put together, and every trace."""
    fitted, refined = alone
    for number, layer in enumerate(fitted.layers):
        own = [shard[0].layers[number] for shard in parts]
        check(layer.state, [one.state for one in own])
        assert all(layer.traces.equals(one.traces) for one in own)
    check(refined.state, [shard[1].state for shard in parts])
    check(refined.last, [shard[1].last for shard in parts])
    assert all(refined.traces.equals(shard[1].traces) for shard in parts)


def check(state, parts):
    for shard in parts:
        assert_equal(shard.shared, state.shared)
    for name, value in state.local._asdict().items():
        own = [getattr(shard.local, name) for shard in parts]
        if isinstance(value, tuple):
            assert_equal([np.concatenate(each) for each in zip(*own, strict=True)], value)
        else:
            assert_equal(np.concatenate(own) if len(value) > 1 else own[0], value)


LEARNED = Precision((), 2.0, 1.0)
BY_IMAGE = Precision(("image",), 2.0, 1.0)
CASES = {
    "held": (MODEL, CHAIN, FIXED, False),
    "learned": (
        replace(MODEL, layers=tuple(replace(layer, gamma_e=LEARNED, gamma_w=LEARNED) for layer in MODEL.layers)),
        CHAIN, RefinementSpec(LEARNED), True,
    ),
    "by image": (
        replace(MODEL, layers=(replace(MODEL.layers[0], gamma_e=BY_IMAGE), MODEL.layers[1])).with_learned_planes(),
        replace(CHAIN, pruning=Pruning(1, 1, 0.9), start="random"), RefinementSpec(BY_IMAGE, empty_blocks=True), False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_chains_have_the_same_bits_in_parts(images, case):
    model, chain, refinement, fresh = CASES[case]
    work = stages(model, chain, refinement, fresh)
    alone = work(Shard(), images)
    for edges in PARTITIONS[1:]:
        assert_same(alone, in_parts(work, images, edges))


def test_chains_of_masked_images_have_the_same_bits_in_parts(images):
    mask = np.random.default_rng(2).random(images.shape) < 0.8
    work = stages(*CASES["learned"][:1], CHAIN, FIXED)
    masked = lambda shard, some: work(shard, (images[some], mask[some]))  # noqa: E731
    assert_same(masked(Shard(), slice(None)), in_parts(masked, np.arange(len(images)), PARTITIONS[1]))


def test_a_checkpoint_of_some_parts_is_read_by_others(images, tmp_path, monkeypatch):
    """Written at every sweep by two parts that stop, read by five, by two, and by one process."""
    monkeypatch.setattr(chains, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(chains, "SHARE_OF_WRITING", np.inf)
    work = stages(MODEL, CHAIN, FIXED, folder=tmp_path)
    alone = stages(MODEL, CHAIN, FIXED)(Shard(), images)
    for sweep in (1, 4):

        def stopped(at, *arguments, sweep=sweep, advance=chains.advance):
            if at.done == sweep:
                raise Stop
            return advance(at, *arguments)

        with monkeypatch.context() as stopping:
            stopping.setattr(chains, "advance", stopped)
            found = in_parts(work, images, PARTITIONS[2 if sweep == 1 else 1])
            assert set(found) == {None}
    assert_same(alone, in_parts(work, images, PARTITIONS[2]))
    assert_same(alone, [work(Shard(), images)])
