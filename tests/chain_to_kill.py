"""What the processes of test_killed.py do: pretrain and refine a small model, and maybe end themselves."""

import io
import os
import signal
from itertools import count

import joblib
import numpy as np
from agreement import digest_of
from tiny_joint import TWO, draw_joint

from gdd.model.spec import ChainSpec, Precision, Pruning, RefinementSpec
from gdd.sampler import chain as chains
from gdd.sampler import checkpoint
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import refine

DUMP, REPLACE = joblib.dump, os.replace


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def half(content, file):
    DUMP(content, whole := io.BytesIO())
    file.write(whole.getvalue()[: whole.tell() // 2])
    file.flush()
    die()


def renamed(source, target):
    REPLACE(source, target)
    die()


#: where a write ends, and what ends it there in place of what
PLACES = {
    "half the data": (joblib, "dump", half), "before the sync": (os, "fsync", die),
    "before the rename": (os, "replace", die), "after the rename": (os, "replace", renamed),
}


def count_writes(place, which):
    write, numbers, (module, name, end) = checkpoint.write, count(1), PLACES[place]
    unarmed = getattr(module, name)

    def counted(*arguments):
        if next(numbers) == which:
            setattr(module, name, end)
        write(*arguments)
        setattr(module, name, unarmed)  # a write that does not come to the place goes on

    checkpoint.write = counted


def run(folder, length):
    """Digest of everything that pretraining and refinement return, traces included."""
    images = draw_joint("two layers", 40).data.images
    pruning = Pruning(length // 4, 2, 0.5)
    chain = ChainSpec(length, length // 2, 5, pruning, single_precision=False)
    refinement = RefinementSpec(Precision(fixed=4.0))
    fitted = pretrain(images, TWO, chain, folder=folder)
    refined = refine(images, fitted.model, chain, refinement, start=fitted, folder=folder)
    parts = (*fitted.layers, refined)
    traces = (trace.values for part in parts for trace in part.traces.values())
    return digest_of(*(part.state for part in parts), refined.last, traces)


def child(pipe, folder, length, place="", write=0):
    """Run with a checkpoint after every sweep, say the digest at the end.

    With ``place``, one of `PLACES`: kill the process there, within its checkpoint number ``write``.
    """
    chains.SECONDS_BETWEEN_CHECKPOINTS, chains.SHARE_OF_WRITING = 0.0, np.inf
    if place:
        count_writes(place, write)
    pipe.send(run(folder, length))
