"""What the processes of test_killed.py do: pretrain and refine a small model, and maybe end themselves."""

import hashlib
import io
import os
import signal

import joblib
import numpy as np
from tiny_joint import TWO, draw_joint

from gdd.model.spec import ChainSpec, Precision, Pruning, RefinementSpec
from gdd.sampler import chain as chains
from gdd.sampler import checkpoint
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import refine

PLACES = ("half the data", "before the sync", "before the rename", "after the rename")


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place):
    """Let the next write end at this place."""
    dump, replace = joblib.dump, os.replace

    def half(content, file):
        whole = io.BytesIO()
        dump(content, whole)
        file.write(whole.getvalue()[: whole.tell() // 2])
        file.flush()
        die()

    def renamed(source, target):
        if place == PLACES[3]:
            replace(source, target)
        die()

    if place == PLACES[0]:
        joblib.dump = half
    elif place == PLACES[1]:
        os.fsync = die
    else:
        os.replace = renamed


def count_writes(place, which):
    write, count, unarmed = checkpoint.write, [0], (joblib.dump, os.fsync, os.replace)

    def counted(*arguments):
        count[0] += 1
        if count[0] == which:
            arm(place)
        write(*arguments)
        joblib.dump, os.fsync, os.replace = unarmed  # a write that does not come to the place goes on

    checkpoint.write = counted


def run(folder, length):
    """Digest of everything that pretraining and refinement return, traces included."""
    images = draw_joint("two layers", 40).data.images
    pruning = Pruning(length // 4, 2, 0.5)
    chain = ChainSpec(length, length // 2, 5, pruning, single_precision=False)
    refinement = RefinementSpec(Precision(fixed=4.0))
    fitted = pretrain(images, TWO, chain, folder=folder)
    refined = refine(images, fitted.model, chain, refinement, start=fitted, folder=folder)
    digest = hashlib.sha256()
    for part in (*fitted.layers, refined):
        for leaf in leaves((part.state, part.traces, getattr(part, "last", ()))):
            digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def leaves(part):
    if hasattr(part, "data_vars"):
        return [part[name].values for name in part.data_vars]
    return [leaf for item in part for leaf in leaves(item)] if isinstance(part, tuple) else [part]


def child(pipe, folder, length, place="", write=0):
    """Run with a checkpoint after every sweep, say the digest at the end.

    With ``place``, one of `PLACES`: kill the process there, within its checkpoint number ``write``.
    """
    chains.SECONDS_BETWEEN_CHECKPOINTS, chains.SHARE_OF_WRITING = 0.0, np.inf
    if place:
        count_writes(place, write)
    pipe.send(run(folder, length))
