"""One chain on many processes and machines, and many independent tasks, on dask.distributed.

The images of a chain are partitioned into shards of whole batches (`gdd.sampler.sums`), one per worker. Each worker
keeps the images and local state of its shard during the whole run and sweeps over them with the ordinary code, inside
an actor, `ShardChain`. It pauses where a draw depends on all images: the driver takes the partial sums of all shards,
adds them up, and sends the total back. So the chain has the same bits on one thread, on many, and on any number of
workers.

The driver writes and reads the checkpoints. If a worker is lost, it resumes from the last one on the remaining workers,
and ends with the same bits.

Needs the extra ``cluster``: ``pip install 'gdd[cluster]'``.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from itertools import pairwise, starmap
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from llvmlite import binding
from threadpoolctl import threadpool_info

from gdd.base import files
from gdd.base.axes import IMAGE, IMAGES
from gdd.base.checks import GddError, as_plain, check_kind, check_whole, warn_of_scale
from gdd.base.compiling import on_threads
from gdd.base.files import user_path
from gdd.inference import deconvolution
from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import Shard
from gdd.results import map_images, select_images
from gdd.sampler.checkpoint import code_checksum
from gdd.sampler.pretrain import Pretrained, pretrain_layers, validate_data
from gdd.sampler.refine import Refined, refine_layers
from gdd.sampler.sums import BATCH

try:
    import distributed
    from distributed import Client
    from distributed.threadpoolexecutor import ThreadPoolExecutor  # whose threads do not hold up the end of a process
except ImportError as error:
    raise GddError("gdd.cluster: dask.distributed is not installed; pip install 'gdd[cluster]'") from error

LOG = logging.getLogger(__name__)
#: seconds to wait for a new worker when all are lost
WORKER_TIMEOUT = 120.0
#: seconds between two checks that the sender of a pending answer is alive
CHECK_AFTER = 2.0
#: exceptions that dask raises if a worker does not answer
UNREACHABLE = (OSError, RuntimeError, TimeoutError, distributed.client.FutureCancelledError)
#: a task uses all threads of its worker, so each process runs one task of ours at a time
_ONE_TASK = threading.Lock()

Images = np.ndarray | xr.DataArray
Progress = Callable[[str, int, int], None]


class WorkerLost(GddError):
    """A worker of a chain is lost."""


# ---- one chain


def learn(
    images: Images, model: ModelSpec, chain: ChainSpec | None = None, *, refine: ChainSpec | None = None,
    refinement: RefinementSpec | None = None, mask: np.ndarray | None = None, folder: str | Path | None = None,
    keep: int | None = None, client: Client | None = None, progress: Progress | None = None,
) -> Pretrained | Refined:
    """Pretrain a model on all workers, and refine it if ``refine`` is given.

    Parameters
    ----------
    images : (image, plane, row, col), in the model's units (background 0, root mean square about 1/3). An array is sent
        to the workers. Of a DataArray backed by dask, as from ``xarray.open_dataset(path, chunks={"image": 512})``,
        each worker reads its own images and the driver only the first batch
    model, chain, mask : as of `gdd.pretrain`
    refine, refinement : chain and settings of `gdd.refine`; None: pretraining alone
    folder : of checkpoints, which the driver writes and reads; without one the run ends if a worker is lost
    keep : number of first images whose state is returned to the driver; None: all
    client : None: the current one, as within ``with Client(...)``
    progress : called regularly with the chain's name, the number of sweeps done, and that of all sweeps

    Returns
    -------
    Pretrained or Refined
        The results of `gdd.pretrain` and `gdd.refine`, bit for bit; with ``keep``, the state of the first images only.

    Raises
    ------
    GddError
        What `gdd.pretrain` and `gdd.refine` refuse; no client; a worker with other code or of another kind; without
        a folder, a lost worker (`WorkerLost`); with one, no worker left for two minutes.

    Notes
    -----
    Refinement starts from the result of pretraining, as pruned.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2, 2.3 and 5 (which hopes for larger machines).
    *Departs:* not in the paper.
    *Checked:* tests/test_cluster.py (bits, kills), tests/test_sums.py.
    """
    check_kind("model", model, ModelSpec)
    client, chain = current(client), chain or ChainSpec()
    count = count_images(images)
    keep = count if keep is None else check_whole("keep", keep, 1)
    folder = None if folder is None else str(user_path("folder", folder, folder=True))
    stages = Stages(model, chain, refine, refinement or RefinementSpec(), folder, keep)
    observed = None if mask is None else as_plain(mask, IMAGES, "mask")
    if observed is not None and observed.shape != images.shape:
        raise GddError(f"mask: shape {observed.shape} given; that of the images, {images.shape}, is needed")
    first_images = load_images(images[:BATCH])
    first_mask = None if observed is None else observed[:BATCH]
    first_data = validate_data(first_images, model, model.layers[0].gamma_e, chain, first_mask)
    warn_of_scale(first_data.images, model.layers[0].gamma_e.fixed)
    if refine is not None:
        check_kind("refine", refine, ChainSpec)
        stages.refinement.check_model(model)
    while True:
        try:
            shards = run_shards(images, observed, count, stages, client, progress)
            return map_images(lambda *arrays: np.concatenate(arrays), *shards)
        except WorkerLost as error:
            if folder is None:
                raise
            LOG.warning("%s; going on from the last checkpoint", error)
        try:
            client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
        except TimeoutError as error:
            what = f"client: no worker left for {WORKER_TIMEOUT:g} s; start some, and run again to go on"
            raise GddError(what) from error


class Stages(NamedTuple):
    """Models and settings of the chains that every shard runs."""

    model: ModelSpec
    chain: ChainSpec
    refine: ChainSpec | None
    refinement: RefinementSpec
    folder: str | None
    keep: int


def run_shards(
    images: Images, mask: np.ndarray | None, count: int, stages: Stages, client: Client, progress: Progress | None
) -> list[Pretrained | Refined]:
    """Partition the images and run the chain once; return the result of every shard."""
    batches = -(-count // BATCH)
    workers = dict(list(checked_workers(client).items())[:batches])
    if not workers:
        raise WorkerLost("cluster: all workers have gone")
    edges = [batches * n // len(workers) * BATCH for n in range(len(workers))] + [count]
    futures = [client.submit(ShardChain, workers=[worker], actor=True, pure=False) for worker in workers]
    check, reached = partial(refuse_gone, workers, client), None
    try:
        with as_worker_lost():
            actors, answers = [wait_for(future, check) for future in futures], []
            for actor, part in zip(actors, starmap(slice, pairwise(edges)), strict=True):
                shard_mask = None if mask is None else mask[part]
                answers.append(actor.begin(images[part], shard_mask, part.start, count, stages))
        while True:
            with as_worker_lost():
                paused = [wait_for(answer, check) for answer in answers]
            for failed in paused:
                if isinstance(failed, BaseException):
                    raise failed
            if not isinstance(paused[0], Pause):
                return paused
            if progress is not None and paused[0].reached != reached:
                progress(*(reached := paused[0].reached))
            responses = paused[0].respond([pause.value for pause in paused])
            with as_worker_lost():
                answers = [actor.go_on(response) for actor, response in zip(actors, responses, strict=True)]
    finally:
        with suppress(*UNREACHABLE):
            client.cancel(futures, force=True)


@contextmanager
def as_worker_lost() -> Iterator[None]:
    """Raise `WorkerLost` instead of the exceptions of dask for a worker that does not answer."""
    try:
        yield
    except UNREACHABLE as error:
        raise WorkerLost(f"cluster: a worker cannot be reached ({error})") from error


def wait_for(awaited: distributed.Future | distributed.ActorFuture, check: Callable[[], None]) -> Any:
    """Wait for an answer until ``check`` raises: from a lost worker or actor dask may never deliver one."""
    while True:
        try:
            return awaited.result(timeout=CHECK_AFTER)
        except TimeoutError:
            if awaited.done():
                return awaited.result()
        check()


def refuse_gone(workers: dict[str, str], client: Client) -> None:
    """Raise WorkerLost if one of these workers is lost, or was restarted at its address."""
    present = running(client)
    gone = [address for address, folder in workers.items() if present.get(address) != folder]
    if gone:
        raise WorkerLost(f"cluster: {', '.join(gone)} has gone")


def running(client: Client) -> dict[str, str]:
    """Folder of every worker, by address; a restarted worker has another.

    The scheduler is queried directly: the client regularly overwrites `Client.scheduler_info` by an answer without
    workers.
    """
    workers = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return {address: worker["local_directory"] for address, worker in workers.items()}


class Pause(NamedTuple):
    """What the chain of a shard waits for: its entry of ``respond``, of the values of all shards."""

    respond: Callable[[list], list]
    value: Any  # of this shard
    reached: tuple[str, int, int]  # the chain's name, the number of sweeps done, and that of all sweeps


class ShardChain:
    """Actor that runs the chain of one shard, in a thread, from one pause to the next.

    Every method returns the next `Pause`, or the result of the chain, or the exception that has ended it.
    """

    def __init__(self) -> None:
        self.asked, self.answers = SimpleQueue(), SimpleQueue()
        weakref.finalize(self, self.answers.put, None)  # ends a chain whose driver is lost

    def begin(self, images: Images, mask: np.ndarray | None, first: int, count: int, stages: Stages) -> Any:
        """Begin the chain of these images, whose first one is number ``first`` of ``count``."""
        pool, threads = ThreadPoolExecutor(1), distributed.get_worker().state.nthreads
        chain = pool.submit(run_shard, self.asked, self.answers, threads, images, mask, first, count, stages)
        chain.add_done_callback(self.asked.put)
        pool.shutdown(wait=False)  # after this chain
        return self.next_pause()

    def go_on(self, response: Any) -> Any:
        """Continue the chain after a pause."""
        self.answers.put((response,))
        return self.next_pause()

    def next_pause(self) -> Any:
        """Wait for the chain's next pause, or its end; until then the process runs nothing else of ours."""
        with one_task():
            paused = self.asked.get()
        return paused if isinstance(paused, Pause) else paused.exception() or paused.result()


class ShardProgress:
    """How far the chain of a shard is."""

    reached = "", 0, 0

    def begin(self, stage: str, sweeps: int, done: int = 0, *_) -> None:  # noqa: D102
        self.reached = stage, done, sweeps

    def step(self, **_) -> None:  # noqa: D102
        stage, done, sweeps = self.reached
        self.reached = stage, done + 1, sweeps


def run_shard(
    asked: SimpleQueue, answers: SimpleQueue, threads: int, images: Images, mask: np.ndarray | None, first: int,
    count: int, stages: Stages,
) -> Pretrained | Refined:
    """Run the chain on one shard's images; its pauses go into ``asked``."""
    (model, chain, refine, refinement, folder, keep), progress = stages, ShardProgress()

    def meet(respond: Callable[[list], list], value: Any) -> Any:
        asked.put(Pause(respond, value, progress.reached))
        if (answer := answers.get()) is None:
            raise SystemExit
        return answer[0]

    with on_threads(threads):
        try:
            data = validate_data(load_images(images), model, model.layers[0].gamma_e, chain, mask)
        except GddError as error:
            raise GddError(f"{error} (images counted from {first})" if first else str(error)) from error
        data = data._replace(shard=Shard(first, count, meet))
        trained = pretrain_layers(data, model, chain, folder, progress)
        if refine is not None:
            trained = refine_layers(data, trained.model, refine, refinement, trained, folder, progress)
        return select_images(trained, slice(max(0, min(keep - first, len(data.images)))))


@contextmanager
def one_task() -> Iterator[None]:
    """Run one task of ours at a time in this process."""
    with _ONE_TASK:
        keep_memory()
        yield


def keep_memory() -> None:
    """Keep freed memory in the process, as glibc does by default; dask's nannies make it return all memory at once.

    Otherwise every large array causes page faults again, which took a tenth of a sweep at 2,000 digits.
    """
    with suppress(AttributeError, OSError):  # other systems have no mallopt, and no need of it
        library = ctypes.CDLL(None)
        library.mallopt(-1, 2**28)  # M_TRIM_THRESHOLD
        library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, at most


def load_images(images: Images) -> np.ndarray:
    """Images as an array; a DataArray is read by this thread."""
    if isinstance(images, xr.DataArray):
        return as_plain(images.load(scheduler="synchronous"), IMAGES, "images")
    return images


# ---- new images


def infer(
    trained: Pretrained | Refined, atoms: Images, images: Images, *, folder: str | Path | None = None,
    client: Client | None = None, first_image: int = 0, **options,
) -> xr.Dataset:
    """`gdd.infer` on all workers, one task per batch of images, with the same bits.

    folder : readable by all: each task writes its maps there, over those of an earlier call; the Dataset reads them on
        demand, and the driver holds none. Every call needs its own folder
    """
    first_image = check_whole("first_image", first_image, 0)
    folder = None if folder is None else user_path("folder", folder, folder=True)
    by_image = {name: options.pop(name) for name in ("mask", "start") if options.get(name) is not None}
    work = partial(deconvolution.infer, _without_images(trained), atoms, **options)
    client, futures = current(client), []
    for start in range(0, count_images(images), BATCH):
        batch, number = slice(start, start + BATCH), first_image + start
        path = None if folder is None else folder / f"images-{number:012d}.nc"
        batch_work = partial(work, **{name: values[batch] for name, values in by_image.items()})
        futures.append(client.submit(_infer_batch, batch_work, images[batch], number, path, pure=False))
    results = client.gather(futures)
    if folder is not None:
        return files.open_several(results, IMAGE)
    return xr.concat(results, IMAGE, combine_attrs="override")


def _infer_batch(work: Callable, images: Images, first_image: int, path: Path | None) -> xr.Dataset | str:
    """Codes of a batch of images, or the path of the file that holds them."""
    codes = _run_alone(work, images, first_image=first_image)
    if path is None:
        return codes
    try:
        files.write(codes, path)
    except files.UNWRITABLE as error:
        raise GddError(f"folder: cannot write {path} ({error}); free space or name another folder") from error
    return str(path)


def _without_images(trained: Pretrained | Refined) -> Pretrained | Refined:
    """Return the model with only its first image, and the mean noise precision where it varies by image."""

    def first_or_mean(array: np.ndarray) -> np.ndarray:  # only precisions have fewer than four axes
        return array[:1].copy() if array.ndim == 4 else array.mean(axis=0, keepdims=True)

    return map_images(first_or_mean, trained)


def _run_alone(work: Callable, *arguments, **options):
    """Run a task alone in its process; DataArrays are first read, by this thread."""

    def load(argument):
        return argument.load(scheduler="synchronous") if isinstance(argument, xr.DataArray) else argument

    with one_task(), on_threads(distributed.get_worker().state.nthreads):
        return work(*map(load, arguments), **options)


# ---- independent tasks


def each(work: Callable, tasks: Iterable[tuple], client: Client | None = None) -> Iterator[Any]:
    """Yield ``work(*task)`` of every task in order, when it is done; other workers repeat a lost worker's tasks."""
    futures = [current(client).submit(_run_alone, work, *task, pure=False) for task in tasks]
    try:
        for future in futures:
            yield future.result()
    except distributed.KilledWorker as error:
        raise GddError(f"jobs: a process ended by itself, again and again; run again to go on ({error})") from error
    finally:
        current(client).cancel(futures, force=True)


# ---- workers


def current(client: Client | None = None) -> Client:
    """Return this client or the current one."""
    check_kind("client", client, (Client, type(None)))
    try:
        return client or distributed.default_client()
    except ValueError as error:
        raise GddError("client: there is none; work within 'with distributed.Client(...)', or give one") from error


def checked_workers(client: Client) -> dict[str, str]:
    """`running` workers, sorted by address; GddError unless all have this process's code and are of one kind."""
    workers = dict(sorted(running(client).items()))
    if not workers:
        raise GddError("client: it has no workers; start some with 'dask worker ADDRESS'")
    local, kinds = fingerprint(), {}
    for address, remote in client.run(fingerprint, on_error="return").items():
        if isinstance(remote, OSError):
            continue  # it is lost
        if isinstance(remote, BaseException):
            raise GddError(f"worker {address}: {remote}; install this version of gdd there")
        if remote[0] != local[0]:
            raise GddError(
                f"worker {address}: another version of the code, {remote[0]:.12} there and {local[0]:.12} here; install"
                " the same version of gdd on all"
            )
        kinds.setdefault(remote[1:], address)
    if len(kinds) > 1:
        (kind, first_worker), (other_kind, other_worker) = list(kinds.items())[:2]
        raise GddError(
            f"worker {other_worker}: another kind of machine or library, {other_kind} there and {kind} at"
            f" {first_worker}; their last bits differ, take workers of one kind"
        )
    present = running(client)
    return {address: folder for address, folder in workers.items() if present.get(address) == folder}


def fingerprint() -> tuple[str, ...]:
    """Checksum of the sampler's code, then versions and machine properties that affect the last bits of a result."""
    pools = (pool for pool in threadpool_info() if pool["user_api"] == "blas")
    blas = sorted({f"{pool['internal_api']} {pool['version']} {pool.get('architecture')}" for pool in pools})
    libraries = (f"{name} {version(name)}" for name in ("numpy", "numba"))
    return code_checksum(), *libraries, binding.get_host_cpu_name(), *blas


def count_images(images: Images) -> int:
    """Return the number of images; GddError unless they are an array or a DataArray with four axes."""
    check_kind("images", images, (np.ndarray, xr.DataArray))
    if images.ndim != len(IMAGES) or not len(images) or getattr(images, "dims", IMAGES)[0] != IMAGE:
        raise GddError(f"images: shape {images.shape} given; one of axes {IMAGES} is needed, images first")
    return len(images)
