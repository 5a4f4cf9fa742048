"""One chain on many processes and machines, and many independent tasks, on dask.distributed.

The images of a chain are dealt out in whole batches (`gdd.sampler.sums`). Each worker holds its images and their state
for the whole run and makes the chain's sweeps on them by the ordinary code. Where a draw needs something of all images,
the workers meet: each sends the few sums that it has, and gets the total. So the chain has the same bits on one thread,
on many, and on any number of workers.

Each worker's images, a shard, are one task, tied to that worker, in which the chain's ordinary loop runs; no image's
state travels. The shards' sums meet at the `Rendezvous`, an actor, whose methods wait without holding a thread.

If a worker is lost, the others stop. With a folder that all workers see, the run then goes on from the last checkpoint
on the workers that are left, and ends at the same bits.

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
#: seconds in which a worker is awaited when all have gone
PATIENCE = 120.0
#: seconds between two looks at the chain
LOOK_EVERY = 0.5
#: seconds after which one who waits for an answer looks whether the other side is there, and in which that must show
CHECK_AFTER, GONE_AFTER = 2.0, 60.0
#: what dask raises where a worker does not answer
UNREACHABLE = (OSError, RuntimeError, TimeoutError, distributed.client.FutureCancelledError)
#: a task uses as many threads as its worker has: one of ours in each process at a time
_ONE_TASK = threading.Lock()

Images = np.ndarray | xr.DataArray
Progress = Callable[[str, int, int], None]


class WorkerLost(GddError):
    """A worker of a chain has gone."""


# ---- one chain


def learn(
    images: Images, model: ModelSpec, chain: ChainSpec | None = None, *, refine: ChainSpec | None = None,
    refinement: RefinementSpec | None = None, mask: np.ndarray | None = None, folder: str | Path | None = None,
    keep: int | None = None, client: Client | None = None, progress: Progress | None = None,
) -> Pretrained | Refined:
    """Pretrain a model on all workers, and refine it from there if ``refine`` is given.

    Parameters
    ----------
    images : (image, plane, row, col), in the model's units (background 0, root mean square about 1/3). An array is sent
        to the workers; of a DataArray backed by dask, such as ``xarray.open_dataset(path, chunks={"image": 512})``
        gives, each worker reads its own images and the driver none
    model, chain, mask : as of `gdd.pretrain`
    refine, refinement : chain and settings of `gdd.refine`; None: pretraining alone
    folder : of checkpoints, seen by all workers; without one a lost worker means starting afresh
    keep : number of first images whose state comes back to the driver; None: all
    client : None: the current one, as within ``with Client(...)``
    progress : called now and then with the chain's name, the sweeps done, and their number

    Returns
    -------
    Pretrained or Refined
        What `gdd.pretrain` and `gdd.refine` return, to the bit; with ``keep`` of the first images only.

    Raises
    ------
    GddError
        What `gdd.pretrain` and `gdd.refine` refuse; no client; a worker with other code or of another kind; without
        a folder, a lost worker (`WorkerLost`); with one, no worker left for two minutes.

    Notes
    -----
    Where pretraining prunes or is resumed, refinement starts from what it ends at, as alone. One chain at a time on the
    same workers: each holds its worker until all its shards have met, so two would wait for each other.

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
    seen = None if mask is None else as_plain(mask, IMAGES, "mask")
    if seen is not None and seen.shape != images.shape:
        raise GddError(f"mask: shape {seen.shape} given; that of the images, {images.shape}, is needed")
    first = load_images(images[:BATCH])
    begun = validate_data(first, model, model.layers[0].gamma_e, chain, None if mask is None else seen[:BATCH])
    warn_of_scale(begun.images, model.layers[0].gamma_e.fixed)
    if refine is not None:
        check_kind("refine", refine, ChainSpec)
        stages.refinement.check_model(model)
    while True:
        try:
            shards = run_shards(images, seen, count, stages, client, progress)
            return map_images(lambda *arrays: np.concatenate(arrays), *shards)
        except WorkerLost as error:
            if folder is None:
                raise
            LOG.warning("%s; going on from the last checkpoint", error)
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise GddError(f"client: no worker left for {PATIENCE:g} s; start some, and run again to go on") from error


class Stages(NamedTuple):
    """What the shards of a chain have to do."""

    model: ModelSpec
    chain: ChainSpec
    refine: ChainSpec | None
    refinement: RefinementSpec
    folder: str | None
    keep: int


def run_shards(
    images: Images, mask: np.ndarray | None, count: int, stages: Stages, client: Client, progress: Progress | None
) -> list[Pretrained | Refined]:
    """Deal the images out and run the chain once; what each shard ends with."""
    batches = -(-count // BATCH)
    workers = dict(list(checked_workers(client).items())[:batches])
    if not workers:
        raise WorkerLost("cluster: all workers have gone")
    edges = [batches * n // len(workers) * BATCH for n in range(len(workers))] + [count]
    first = next(iter(workers))
    place = client.submit(Rendezvous, len(workers), workers=[first], actor=True, pure=False)
    futures = [place]
    try:
        check = partial(refuse_gone, workers, client)
        with as_worker_lost():
            rendezvous = wait_for(gather_in_background(client, place), check)
            for number, worker in enumerate(workers):
                some = slice(edges[number], edges[number + 1])
                own = [send_images(array, some, worker, client) for array in (images, mask)]
                rank = Rank(rendezvous, {first: workers[first]}, number, some.start, count)
                futures.append(client.submit(run_shard, *own, rank, stages, workers=[worker], pure=False))
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
    """Within, what dask raises where a worker does not answer is a `WorkerLost`."""
    try:
        yield
    except UNREACHABLE as error:
        raise WorkerLost(f"cluster: a worker cannot be reached ({error})") from error


def send_images(
    images: Images | None, some: slice, worker: str, client: Client
) -> Images | distributed.Future | None:
    """Some images: of an array, sent to a worker; of a DataArray, still to be read; None if there are none."""
    if images is None or isinstance(images, xr.DataArray):
        return None if images is None else images[some]
    try:
        return client.scatter(images[some], workers=[worker], hash=False)
    except KeyError as error:  # dask's word for a worker that it does not know
        raise WorkerLost(f"cluster: {worker} has gone") from error


def watch(
    futures: list[distributed.Future], rendezvous: Rendezvous, check: Callable[[], None], progress: Progress | None
) -> Exception | None:
    """Wait for the shards, showing how far they are; whatever ends this stops those that still run.

    Returns what a shard failed with, if one did.
    """
    try:
        while not all(future.done() for future in futures):
            time.sleep(LOOK_EVERY)
            failed = [future.exception() for future in futures if future.status == "error"]
            if failed:
                return next((one for one in failed if not isinstance(one, Stopped)), WorkerLost("cluster: stopped"))
            with as_worker_lost():
                reached = wait_for(rendezvous.look(), check)
                check()
            if progress is not None and reached is not None:
                progress(*reached)
        return next((error for error in (future.exception() for future in futures) if error), None)
    finally:
        with suppress(*UNREACHABLE, WorkerLost):  # if the rendezvous has gone, the shards see it for themselves
            wait_for(rendezvous.stop("the chain has ended"), check)


def gather_in_background(client: Client, futures) -> Future:
    """Fetch results in the client's own thread."""
    return asyncio.run_coroutine_threadsafe(client.gather(futures, asynchronous=True), client.loop.asyncio_loop)


def wait_for(awaited: Future | distributed.ActorFuture, check: Callable[[], Any]) -> Any:
    """Wait for an answer until ``check`` raises: of a worker or an actor that has gone, dask may never bring any."""
    while True:
        try:
            return awaited.result(timeout=CHECK_AFTER)
        except TimeoutError:
            if awaited.done():
                return awaited.result()
        check()


def refuse_gone(workers: dict[str, str], client: Client) -> None:
    """Raise WorkerLost if one of these workers is no longer there, or was started again at its address."""
    there = running(client)
    gone = [address for address, folder in workers.items() if there.get(address) != folder]
    if gone:
        raise WorkerLost(f"cluster: {', '.join(gone)} has gone")


def running(client: Client) -> dict[str, str]:
    """Folder of every worker, by address; a worker that is started again gets another.

    The scheduler is asked. What `Client.scheduler_info` returns can be replaced meanwhile by the answer to the client's
    own regular question, which names no workers.
    """
    workers = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return {address: one["local_directory"] for address, one in workers.items()}


class Stopped(GddError):
    """Other shards have stopped, so this one has to."""


class Rendezvous:
    """Where the shards' values are combined. An actor: its methods wait on the worker's event loop."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.rounds, self.why, self.reached = ranks, {}, None, None

    async def allreduce(self, rank: int, number: int, combine: Callable[[list], Any], value: Any) -> Any:
        """Return all ranks' values of round ``number``, combined, once all are here."""
        here = self.rounds.setdefault(number, Round({}, asyncio.get_running_loop().create_future()))
        here.values[rank] = value
        if len(here.values) == self.ranks:
            here.combined.set_result(combine([here.values[rank] for rank in range(self.ranks)]))
            del self.rounds[number]
        while not here.combined.done():
            if self.why:
                raise Stopped(f"cluster: {self.why}")
            await asyncio.wait([here.combined], timeout=LOOK_EVERY)
        return here.combined.result()

    async def stop(self, why: str) -> None:
        """End the chain: whoever waits in a round, or comes to one, raises `Stopped`."""
        self.why = why

    async def report(self, reached: tuple[str, int, int]) -> None:
        """Keep the chain's name, the sweeps done, and their number, for the driver."""
        self.reached = reached

    async def look(self) -> tuple[str, int, int] | None:
        """Return the last report."""
        return self.reached


class Round(NamedTuple):
    """One combination."""

    values: dict[int, Any]  # by rank
    combined: asyncio.Future


class Rank(NamedTuple):
    """A shard's place among all."""

    rendezvous: Rendezvous
    place: dict[str, str]  # the worker of the rendezvous: its folder, by address
    number: int
    first: int  # number of the first image
    images: int  # of all shards

    def shard(self) -> Shard:
        """Return the shard, whose rounds are counted from here on."""
        rounds = itertools.count()

        def allreduce(combine: Callable[[list], Any], value: Any) -> Any:
            try:
                awaited = self.rendezvous.allreduce(self.number, next(rounds), combine, value)
                return wait_for(awaited, self.refuse_gone)
            except (*UNREACHABLE, WorkerLost) as error:
                raise Stopped(f"cluster: the meeting place cannot be reached ({error})") from error

        return Shard(self.first, self.images, allreduce)

    def refuse_gone(self) -> None:
        """Raise if the worker of the rendezvous has gone, or that itself, as with its driver: then no call returns."""
        refuse_gone(self.place, distributed.get_client())
        self.rendezvous.look().result(timeout=GONE_AFTER)


class RemoteProgress:
    """Progress of a shard's chain, which the first one reports to the rendezvous now and then."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.stage, self.done, self.sweeps, self.reported = rank, "", 0, 0, 0.0

    def begin(self, stage: str, sweeps: int, done: int = 0, *_) -> None:
        """Begin a chain."""
        self.stage, self.sweeps, self.done = stage, sweeps, done

    def step(self, **_) -> None:
        """Count a sweep."""
        self.done += 1
        if self.rank.number == 0 and time.monotonic() - self.reported > LOOK_EVERY:
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
    """Keep freed memory in the process, which is glibc's default: dask's nannies make it return all at once.

    Without this every large array costs page faults again, which took a tenth of a sweep at 2,000 digits.
    """
    with suppress(AttributeError, OSError):  # other systems have no mallopt, and no need of it
        library = ctypes.CDLL(None)
        library.mallopt(-1, 2**28)  # M_TRIM_THRESHOLD
        library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, at most


def load_images(images: Images) -> np.ndarray:
    """Images as an array; those of dask are read here, by this thread."""
    if isinstance(images, xr.DataArray):
        return as_plain(images.load(scheduler="synchronous"), IMAGES, "images")
    return images


# ---- new images


def infer(
    trained: Pretrained | Refined, atoms: Images, images: Images, *, folder: str | Path | None = None,
    client: Client | None = None, first_image: int = 0, **options,
) -> xr.Dataset:
    """`gdd.infer` by sampling on all workers, a batch of the images a task: the same bits.

    Parameters
    ----------
    trained, atoms, **options : as of `gdd.infer`; ``first_image`` too
    images : (image, plane, row, col), as of `learn`
    folder : seen by all: each task writes its maps there, over those of an earlier call; the Dataset reads them when
        they are used, and the driver holds none. Every call needs a folder of its own
    client : None: the current one
    """
    first_image = check_whole("first_image", first_image, 0)
    folder = None if folder is None else user_path("folder", folder, folder=True)
    by_image = {name: options.pop(name) for name in ("mask", "start") if options.get(name) is not None}
    work, client, futures = partial(new_images.infer, _light(trained), atoms, **options), current(client), []
    for at in range(0, count_images(images), BATCH):
        some, path = slice(at, at + BATCH), None if folder is None else folder / f"images-{first_image + at:012d}.nc"
        mine = partial(work, **{name: values[some] for name, values in by_image.items()})
        futures.append(client.submit(_infer_some, mine, images[some], first_image + at, path, pure=False))
    found = client.gather(futures)
    if folder is not None:
        return files.open_several(found, IMAGE)
    return xr.concat(found, IMAGE, combine_attrs="override")


def _infer_some(work: Callable, images: Images, first_image: int, path: Path | None) -> xr.Dataset | str:
    """Result for some images, or the path of the file that has it."""
    found = _task(work, images, first_image=first_image)
    if path is None:
        return found
    try:
        files.write(found, path)
    except files.UNWRITABLE as error:
        raise GddError(f"folder: cannot write {path} ({error}); free space or name another folder") from error
    return str(path)


def infer_layers(
    fitted: Pretrained, images: Images, burn_in: int, collect: int, seed: int, *, client: Client | None = None
) -> tuple[xr.Dataset, ...]:
    """`gdd.inference.fixed_dictionary.infer_layers` on all workers, a batch of the images a task: the same bits."""
    client, work = current(client), partial(fixed_dictionary.infer_layers, _light(fitted))
    futures = [
        client.submit(_task, work, images[at : at + BATCH], burn_in, collect, seed, first_image=at, pure=False)
        for at in range(0, count_images(images), BATCH)
    ]
    return tuple(xr.concat(layer, IMAGE) for layer in zip(*client.gather(futures), strict=True))


def _light(trained: Pretrained | Refined) -> Pretrained | Refined:
    """Return the model with no image but the first, and the mean noise precision where images have one each."""

    def first_or_mean(array: np.ndarray) -> np.ndarray:  # only precisions have fewer than four axes
        return array[:1].copy() if array.ndim == 4 else array.mean(axis=0, keepdims=True)

    return map_images(first_or_mean, trained)


def _task(work: Callable, *arguments, **options):
    """Run a task by itself in its process; labelled images are first read, by this thread."""
    with one_task():
        arguments = [one.load(scheduler="synchronous") if isinstance(one, xr.DataArray) else one for one in arguments]
        return work(*arguments, **options)


# ---- independent tasks


def each(work: Callable, tasks: Iterable[tuple], client: Client | None = None) -> Iterator[Any]:
    """Yield ``work(*task)`` of every task in order, as each is done; a lost worker's tasks are done again by others.

    ``work`` and the tasks travel, so both must be picklable.
    """
    futures = [current(client).submit(_task, work, *task, pure=False) for task in tasks]
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
    """Workers as of `running`, in order, all with this process's code and of one kind; GddError otherwise."""
    workers = dict(sorted(running(client).items()))
    if not workers:
        raise GddError("client: it has no workers; start some with 'dask worker ADDRESS'")
    here, kinds = fingerprint(), {}
    for address, found in client.run(fingerprint, on_error="return").items():
        if isinstance(found, OSError):
            continue  # it has gone
        if isinstance(found, BaseException):
            raise GddError(f"worker {address}: {found}; install this version of gdd there")
        if found[0] != here[0]:
            raise GddError(
                f"worker {address}: another version of the code, {found[0]:.12} there and {here[0]:.12} here; install "
                "the same version of gdd on all"
            )
        kinds.setdefault(found[1:], address)
    if len(kinds) > 1:
        (one, there), (other, elsewhere) = list(kinds.items())[:2]
        raise GddError(
            f"worker {elsewhere}: another kind of machine or library, {other} there and {one} at {there}; their last "
            "bits differ, take workers of one kind"
        )
    still = running(client)
    return {address: folder for address, folder in workers.items() if still.get(address) == folder}


def fingerprint() -> tuple[str, ...]:
    """Checksum of the sampler's code, then what the last bits of a result depend on besides."""
    blas = sorted({f"{one['internal_api']} {one['version']} {one.get('architecture')}" for one in threadpool_info()
                   if one["user_api"] == "blas"})
    libraries = (f"{name} {version(name)}" for name in ("numpy", "numba"))
    return code_checksum(), *libraries, binding.get_host_cpu_name(), *blas


def count_images(images: Images) -> int:
    """Return the number of images; GddError unless they are an array or a DataArray with four axes."""
    check_kind("images", images, (np.ndarray, xr.DataArray))
    if images.ndim != len(IMAGES) or not len(images) or getattr(images, "dims", IMAGES)[0] != IMAGE:
        raise GddError(f"images: shape {images.shape} given; one of axes {IMAGES} is needed, images first")
    return len(images)
