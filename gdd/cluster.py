"""One chain on many processes and machines, and many independent tasks, on dask.distributed.

The images of a chain are partitioned into shards of whole batches (`gdd.sampler.sums`), one per worker. Each worker
keeps the images and local state of its shard during the whole run and sweeps over them with the ordinary code. A draw
that depends on all images is an all-reduce: every worker sends its partial sums and receives the total. So the chain
has the same bits on one thread, on many, and on any number of workers.

The chain of a shard is one task, pinned to its worker; the local state is never sent. The `Rendezvous`, an actor,
reduces the shards' sums; its methods wait without blocking a thread.

If a worker is lost, the others stop. With a checkpoint folder that all workers can read, the run resumes from the last
checkpoint on the remaining workers, and ends with the same bits.

Needs the extra ``cluster``: ``pip install 'gdd[cluster]'``.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
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
from gdd.inference import fixed_dictionary
from gdd.inference import infer as new_images
from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import Shard
from gdd.results import map_images, of_images
from gdd.sampler.checkpoint import code_checksum
from gdd.sampler.pretrain import Pretrained, pretrain_layers, validate_data
from gdd.sampler.refine import Refined, refine_layers
from gdd.sampler.sums import BATCH

try:
    import distributed
    from distributed import Client
except ImportError as error:
    raise GddError("gdd.cluster: dask.distributed is not installed; pip install 'gdd[cluster]'") from error

LOG = logging.getLogger(__name__)
#: seconds to wait for a new worker when all are lost
WORKER_TIMEOUT = 120.0
#: seconds between two polls of the chain
POLL_SECONDS = 0.5
#: seconds after which a pending answer prompts a check that its sender is alive, and within which the sender must reply
CHECK_AFTER, LOST_AFTER = 2.0, 60.0
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
    folder : of checkpoints, readable by all workers; without one the run ends if a worker is lost
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
    Refinement starts from the result of pretraining, as pruned. Only one chain can run on the same workers: each shard
    holds its worker until all shards have met, so two chains would deadlock.

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
    first = next(iter(workers))
    actor = client.submit(Rendezvous, len(workers), workers=[first], actor=True, pure=False)
    futures = [actor]
    try:
        check = partial(refuse_gone, workers, client)
        with as_worker_lost():
            rendezvous = wait_for(gather_in_background(client, actor), check)
            for number, worker in enumerate(workers):
                part = slice(edges[number], edges[number + 1])
                data = [send_images(array, part, worker, client) for array in (images, mask)]
                rank = Rank(rendezvous, {first: workers[first]}, number, part.start, count)
                futures.append(client.submit(run_shard, *data, rank, stages, workers=[worker], pure=False))
        failed = watch(futures[1:], rendezvous, check, progress)
        if failed:
            raise failed
        with as_worker_lost():
            return wait_for(gather_in_background(client, futures[1:]), check)
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


def send_images(
    images: Images | None, batch: slice, worker: str, client: Client
) -> Images | distributed.Future | None:
    """A slice of the images: of an array, sent to a worker; of a DataArray, read there later. None stays None."""
    if images is None or isinstance(images, xr.DataArray):
        return None if images is None else images[batch]
    try:
        return client.scatter(images[batch], workers=[worker], hash=False)
    except KeyError as error:  # dask's word for a worker that it does not know
        raise WorkerLost(f"cluster: {worker} has gone") from error


def watch(
    futures: list[distributed.Future], rendezvous: Rendezvous, check: Callable[[], None], progress: Progress | None
) -> Exception | None:
    """Wait for the shards and report their progress; on any exit, stop those still running.

    Returns the exception of a shard that failed, else None.
    """
    try:
        while not all(future.done() for future in futures):
            time.sleep(POLL_SECONDS)
            failed = [future.exception() for future in futures if future.status == "error"]
            if failed:
                causes = (error for error in failed if not isinstance(error, Stopped))
                return next(causes, WorkerLost("cluster: stopped"))
            with as_worker_lost():
                reached = wait_for(rendezvous.look(), check)
                check()
            if progress is not None and reached is not None:
                progress(*reached)
        return next((error for error in (future.exception() for future in futures) if error), None)
    finally:
        with suppress(*UNREACHABLE, WorkerLost):  # the shards themselves notice the loss of the rendezvous
            wait_for(rendezvous.stop("the chain has ended"), check)


def gather_in_background(client: Client, futures) -> Future:
    """Fetch results in the client's own thread."""
    return asyncio.run_coroutine_threadsafe(client.gather(futures, asynchronous=True), client.loop.asyncio_loop)


def wait_for(awaited: Future | distributed.ActorFuture, check: Callable[[], Any]) -> Any:
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


class Stopped(GddError):
    """Other shards have stopped, so this one must too."""


class Rendezvous:
    """Actor that reduces the shards' values; its methods wait on the worker's event loop."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.rounds, self.why, self.reached = ranks, {}, None, None

    async def allreduce(self, rank: int, number: int, combine: Callable[[list], Any], value: Any) -> Any:
        """Return the combined values of all ranks in round ``number``, once all have arrived."""
        current_round = self.rounds.setdefault(number, Round({}, asyncio.get_running_loop().create_future()))
        current_round.values[rank] = value
        if len(current_round.values) == self.ranks:
            current_round.combined.set_result(combine([current_round.values[rank] for rank in range(self.ranks)]))
            del self.rounds[number]
        while not current_round.combined.done():
            if self.why:
                raise Stopped(f"cluster: {self.why}")
            await asyncio.wait([current_round.combined], timeout=POLL_SECONDS)
        return current_round.combined.result()

    async def stop(self, why: str) -> None:
        """End the chain: every shard that waits in a round, or enters one, raises `Stopped`."""
        self.why = why

    async def report(self, reached: tuple[str, int, int]) -> None:
        """Store the chain's name, the number of sweeps done, and that of all sweeps, for the driver."""
        self.reached = reached

    async def look(self) -> tuple[str, int, int] | None:
        """Return the last report."""
        return self.reached


class Round(NamedTuple):
    """One reduction."""

    values: dict[int, Any]  # by rank
    combined: asyncio.Future


class Rank(NamedTuple):
    """A shard's number, its images, and where its values are reduced."""

    rendezvous: Rendezvous
    worker: dict[str, str]  # of the rendezvous: its folder, by address
    number: int
    first: int  # number of the first image
    images: int  # number of images of all shards

    def shard(self) -> Shard:
        """Return the `Shard`, whose rounds of reduction are numbered from 0."""
        rounds = itertools.count()

        def allreduce(combine: Callable[[list], Any], value: Any) -> Any:
            try:
                awaited = self.rendezvous.allreduce(self.number, next(rounds), combine, value)
                return wait_for(awaited, self.refuse_gone)
            except (*UNREACHABLE, WorkerLost) as error:
                raise Stopped(f"cluster: the meeting place cannot be reached ({error})") from error

        return Shard(self.first, self.images, allreduce)

    def refuse_gone(self) -> None:
        """Raise if the worker of the rendezvous is lost, or the rendezvous itself, which ends with its driver."""
        refuse_gone(self.worker, distributed.get_client())
        self.rendezvous.look().result(timeout=LOST_AFTER)


class RemoteProgress:
    """Progress of a shard's chain; the first shard reports it regularly to the rendezvous."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.stage, self.done, self.sweeps, self.reported = rank, "", 0, 0, 0.0

    def begin(self, stage: str, sweeps: int, done: int = 0, *_) -> None:
        """Begin a chain."""
        self.stage, self.sweeps, self.done = stage, sweeps, done

    def step(self, **_) -> None:
        """Count a sweep."""
        self.done += 1
        if self.rank.number == 0 and time.monotonic() - self.reported > POLL_SECONDS:
            self.reported = time.monotonic()
            self.rank.rendezvous.report((self.stage, self.done, self.sweeps))


def run_shard(images: Images, mask: np.ndarray | None, rank: Rank, stages: Stages) -> Pretrained | Refined:
    """Run the chain on one shard's images; a task of the shard's worker."""
    model, chain, refine, refinement, folder, keep = stages
    with one_task():
        try:
            data = validate_data(load_images(images), model, model.layers[0].gamma_e, chain, mask)
        except GddError as error:
            raise GddError(f"{error} (images counted from {rank.first})" if rank.first else str(error)) from error
        data, progress = data._replace(shard=rank.shard()), RemoteProgress(rank)
        trained = pretrain_layers(data, model, chain, folder, progress)
        if refine is not None:
            trained = refine_layers(data, trained.model, refine, refinement, trained, folder, progress)
        return of_images(trained, slice(max(0, min(keep - rank.first, len(data.images)))))


@contextmanager
def one_task() -> Iterator[None]:
    """Run one task of ours at a time in this process, with as many threads as the worker has."""
    with _ONE_TASK:
        keep_memory()
        with on_threads(distributed.get_worker().state.nthreads):
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

    Parameters
    ----------
    trained, atoms, **options : as of `gdd.infer`; ``first_image`` too
    images : (image, plane, row, col), as of `learn`
    folder : readable by all: each task writes its maps there, over those of an earlier call; the Dataset reads them on
        demand, and the driver holds none. Every call needs its own folder
    client : None: the current one
    """
    first_image = check_whole("first_image", first_image, 0)
    folder = None if folder is None else user_path("folder", folder, folder=True)
    by_image = {name: options.pop(name) for name in ("mask", "start") if options.get(name) is not None}
    work, client, futures = partial(new_images.infer, _without_images(trained), atoms, **options), current(client), []
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


def infer_layers(
    fitted: Pretrained, images: Images, burn_in: int, collect: int, seed: int, *, client: Client | None = None
) -> tuple[xr.Dataset, ...]:
    """`gdd.inference.fixed_dictionary.infer_layers` on all workers, one task per batch of images; the same bits."""
    client, work = current(client), partial(fixed_dictionary.infer_layers, _without_images(fitted))
    futures = [
        client.submit(_run_alone, work, images[n : n + BATCH], burn_in, collect, seed, first_image=n, pure=False)
        for n in range(0, count_images(images), BATCH)
    ]
    return tuple(xr.concat(layer, IMAGE) for layer in zip(*client.gather(futures), strict=True))


def _without_images(trained: Pretrained | Refined) -> Pretrained | Refined:
    """Return the model with only its first image, and the mean noise precision where it varies by image."""

    def first_or_mean(array: np.ndarray) -> np.ndarray:  # only precisions have fewer than four axes
        return array[:1].copy() if array.ndim == 4 else array.mean(axis=0, keepdims=True)

    return map_images(first_or_mean, trained)


def _run_alone(work: Callable, *arguments, **options):
    """Run a task alone in its process; DataArrays are first read, by this thread."""

    def load(argument):
        return argument.load(scheduler="synchronous") if isinstance(argument, xr.DataArray) else argument

    with one_task():
        return work(*map(load, arguments), **options)


# ---- independent tasks


def each(work: Callable, tasks: Iterable[tuple], client: Client | None = None) -> Iterator[Any]:
    """Yield ``work(*task)`` of every task in order, each when it is done; other workers repeat a lost worker's tasks.

    ``work`` and the tasks must be picklable.
    """
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
