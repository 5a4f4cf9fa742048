"""One chain on many processes and machines, and many independent tasks, on dask.distributed.

The images of a chain are dealt out in whole batches (`gdd.sampler.sums`). Each worker holds its images and their state
for the whole run and makes the chain's sweeps on them by the ordinary code. Where a draw needs something of all images,
the workers meet: each sends the few sums that it has, and gets the total. So the chain has the same bits on one thread,
on many, and on any number of workers.

Each worker's part is one task, tied to that worker, in which the chain's ordinary loop runs; no image's state travels.
The parts meet at the `Hub`, an actor, whose methods wait without holding a thread.

If a worker is lost, the others stop. With a folder that all workers see, the run then goes on from the last checkpoint
on the workers that are left, and ends at the same bits.

Needs the extra ``cluster``: ``pip install 'gdd[cluster]'``.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import xarray as xr
from llvmlite import binding
from threadpoolctl import threadpool_info

from gdd.base import netcdf
from gdd.base.axes import IMAGE, IMAGES
from gdd.base.checks import GddError, as_plain, check_kind, check_whole, warn_of_scale
from gdd.base.compiling import on_threads
from gdd.base.files import user_path
from gdd.inference import fixed_dictionary
from gdd.inference import infer as new_images
from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import LayerData, Part
from gdd.results import of_images, pairs_of, with_pairs
from gdd.sampler.checkpoint import code_checksum
from gdd.sampler.pretrain import Pretrained, pretrain_layers, validate_data
from gdd.sampler.refine import Refined, run_joint_chain, start_from
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
DOUBT_AFTER, GONE_AFTER = 2.0, 60.0
#: what dask raises where a worker does not answer
UNREACHABLE = (OSError, RuntimeError, TimeoutError, distributed.client.FutureCancelledError)
#: a task uses as many threads as its worker has: one of ours in each process at a time
_ALONE = threading.Lock()

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
    same workers: each holds its worker until all its parts have met, so two would wait for each other.

    *Source:* Pu, Yuan & Carin 2015, Sec. 2.2, 2.3 and 5 (which hopes for larger machines).
    *Departs:* not in the paper.
    *Checked:* tests/test_cluster.py (bits, kills), tests/test_sums.py.
    """
    check_kind("model", model, ModelSpec)
    client, chain = current(client), chain or ChainSpec()
    count = check_images(images)
    keep = count if keep is None else check_whole("keep", keep, 1)
    folder = None if folder is None else str(user_path("folder", folder, folder=True))
    stages = Stages(model, chain, refine, refinement or RefinementSpec(), folder, keep)
    seen = None if mask is None else as_plain(mask, IMAGES, "mask")
    if seen is not None and seen.shape != images.shape:
        raise GddError(f"mask: shape {seen.shape} given; that of the images, {images.shape}, is needed")
    first = loaded(images[:BATCH])
    begun = validate_data(first, model, model.layers[0].gamma_e, chain, None if mask is None else seen[:BATCH])
    warn_of_scale(begun.images, model.layers[0].gamma_e.fixed)
    if refine is not None:
        check_kind("refine", refine, ChainSpec)
        stages.refinement.check_model(model)
    while True:
        try:
            return joined(run_parts(images, seen, count, stages, client, progress))
        except WorkerLost as error:
            if folder is None:
                raise
            LOG.warning("%s; going on from the last checkpoint", error)
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise GddError(f"client: no worker left for {PATIENCE:g} s; start some, and run again to go on") from error


class Stages(NamedTuple):
    """What the parts of a chain have to do."""

    model: ModelSpec
    chain: ChainSpec
    refine: ChainSpec | None
    refinement: RefinementSpec
    folder: str | None
    keep: int


def run_parts(
    images: Images, mask: np.ndarray | None, count: int, stages: Stages, client: Client, progress: Progress | None
) -> list[Pretrained | Refined]:
    """Deal the images out and run the chain once; what each part ends with."""
    batches = -(-count // BATCH)
    workers = dict(list(checked_workers(client).items())[:batches])
    if not workers:
        raise WorkerLost("cluster: all workers have gone")
    edges = [batches * n // len(workers) * BATCH for n in range(len(workers))] + [count]
    first = next(iter(workers))
    place = client.submit(Hub, len(workers), workers=[first], actor=True, pure=False)
    futures = [place]
    try:
        check = partial(refuse_gone, workers, client)
        with losses():
            hub = answer(background(client, place), check)
            for number, worker in enumerate(workers):
                some = slice(edges[number], edges[number + 1])
                own = [sent(images, some, worker, client), None if mask is None else sent(mask, some, worker, client)]
                seat = Seat(hub, {first: workers[first]}, number, some.start, count)
                futures.append(client.submit(run_part, *own, seat, stages, workers=[worker], pure=False))
        failed = watch(futures[1:], hub, check, progress)
        if failed:
            raise failed
        with losses():
            return answer(background(client, futures[1:]), check)
    finally:
        with suppress(*UNREACHABLE):
            client.cancel(futures, force=True)


@contextmanager
def losses() -> Iterator[None]:
    """Within, what dask raises where a worker does not answer is a `WorkerLost`."""
    try:
        yield
    except UNREACHABLE as error:
        raise WorkerLost(f"cluster: a worker cannot be reached ({error})") from error


def sent(images: Images, some: slice, worker: str, client: Client) -> Images | distributed.Future:
    """Some images: of an array, sent to a worker; of a DataArray, still to be read."""
    if isinstance(images, xr.DataArray):
        return images[some]
    try:
        return client.scatter(images[some], workers=[worker], hash=False)
    except KeyError as error:  # dask's word for a worker that it does not know
        raise WorkerLost(f"cluster: {worker} has gone") from error


def watch(futures, hub: Hub, check: Callable[[], None], progress: Progress | None) -> Exception | None:
    """Wait for the parts, showing how far they are; whatever ends this stops those that still run.

    Returns what a part failed with, if one did.
    """
    try:
        while not all(future.done() for future in futures):
            time.sleep(LOOK_EVERY)
            failed = [future.exception() for future in futures if future.status == "error"]
            if failed:
                return next((one for one in failed if not isinstance(one, Stopped)), WorkerLost("cluster: stopped"))
            with losses():
                reached = answer(hub.look(), check)
                check()
            if progress is not None and reached is not None:
                progress(*reached)
        return next((error for error in (future.exception() for future in futures) if error), None)
    finally:
        with suppress(*UNREACHABLE, WorkerLost):  # if the hub has gone, the parts see it for themselves
            answer(hub.stop("the chain has ended"), check)


def background(client: Client, futures) -> Future:
    """Fetch results in the client's own thread."""
    return asyncio.run_coroutine_threadsafe(client.gather(futures, asynchronous=True), client.loop.asyncio_loop)


def answer(awaited: Future | distributed.ActorFuture, check: Callable[[], Any]) -> Any:
    """Wait for an answer until ``check`` raises: of a worker or a hub that has gone, dask may never bring any."""
    while True:
        try:
            return awaited.result(timeout=DOUBT_AFTER)
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
    """Other parts have stopped, so this one has to."""


class Hub:
    """Where the parts of a chain meet. An actor: its methods wait on the worker's event loop."""

    def __init__(self, parts: int) -> None:
        self.parts, self.turns, self.why, self.reached = parts, {}, None, None

    async def meet(self, number: int, turn: int, combine: Callable[[list], Any], value: Any) -> Any:
        """Return the parts' values of this turn, combined, once all are here."""
        here = self.turns.setdefault(turn, Turn([None] * self.parts, asyncio.Event(), []))
        here.values[number] = value
        here.come.append(number)
        if len(here.come) == self.parts:
            here.values[:] = [combine(here.values)]
            here.all_there.set()
            del self.turns[turn]
        while not here.all_there.is_set():
            if self.why:
                raise Stopped(f"cluster: {self.why}")
            with suppress(TimeoutError):
                await asyncio.wait_for(here.all_there.wait(), LOOK_EVERY)
        return here.values[0]

    async def stop(self, why: str) -> None:
        """End the chain: whoever waits at a meeting, or comes to one, raises `Stopped`."""
        self.why = why

    async def report(self, reached: tuple[str, int, int]) -> None:
        """Keep the chain's name, the sweeps done, and their number, for the driver."""
        self.reached = reached

    async def look(self) -> tuple[str, int, int] | None:
        """Return the last report."""
        return self.reached


class Turn(NamedTuple):
    """One meeting."""

    values: list  # by part; in the end the combination alone
    all_there: asyncio.Event
    come: list[int]


class Seat(NamedTuple):
    """A part's place at the hub."""

    hub: Hub
    place: dict[str, str]  # the hub's worker: its folder, by address
    number: int
    first: int
    images: int

    def part(self) -> Part:
        """Return the part, whose meetings are counted from here on."""
        turn = 0

        def meet(combine: Callable[[list], Any], value: Any) -> Any:
            nonlocal turn
            turn += 1
            try:
                return answer(self.hub.meet(self.number, turn, combine, value), self.refuse_gone)
            except (*UNREACHABLE, WorkerLost) as error:
                raise Stopped(f"cluster: the meeting place cannot be reached ({error})") from error

        return Part(self.first, self.images, meet)

    def refuse_gone(self) -> None:
        """Raise if the hub's worker has gone, or the hub has, as it does with its driver: then no call returns."""
        refuse_gone(self.place, distributed.get_client())
        self.hub.look().result(timeout=GONE_AFTER)


class RemoteProgress:
    """Progress of a part's chain, which the first part reports to the hub now and then."""

    def __init__(self, seat: Seat) -> None:
        self.seat, self.stage, self.done, self.sweeps, self.reported = seat, "", 0, 0, 0.0

    def begin(self, stage: str, sweeps: int, done: int = 0, *_) -> None:
        """Begin a chain."""
        self.stage, self.sweeps, self.done = stage, sweeps, done

    def step(self, **_) -> None:
        """Count a sweep."""
        self.done += 1
        if self.seat.number == 0 and time.monotonic() - self.reported > LOOK_EVERY:
            self.reported = time.monotonic()
            self.seat.hub.report((self.stage, self.done, self.sweeps))


def run_part(images: Images, mask: np.ndarray | None, seat: Seat, stages: Stages) -> Pretrained | Refined:
    """Run the chain on one part's images; a task of the part's worker."""
    model, chain, refine, refinement, folder, keep = stages
    with one_task():
        try:
            data = validate_data(loaded(images), model, model.layers[0].gamma_e, chain, mask)
        except GddError as error:
            raise GddError(f"{error} (images counted from {seat.first})" if seat.first else str(error)) from error
        data, progress = data._replace(part=seat.part()), RemoteProgress(seat)
        trained = fitted = pretrain_layers(data, model, chain, folder, progress)
        if refine is not None:
            begun = start_from(fitted, refinement, refine)
            trained = run_joint_chain(begun, data, fitted.model, refine, refinement, folder, progress)
        return of_images(trained, slice(max(0, min(keep - seat.first, len(data.images)))))


@contextmanager
def one_task() -> Iterator[None]:
    """Run one task of ours at a time in this process, with as many threads as the worker has."""
    with _ALONE:
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


def loaded(images: Images) -> np.ndarray:
    """Images as an array; those of dask are read here, by this thread."""
    if isinstance(images, xr.DataArray):
        return as_plain(images.load(scheduler="synchronous"), IMAGES, "images")
    return images


# ---- images of parts, and parts of images


def joined(parts: list[Pretrained | Refined]) -> Pretrained | Refined:
    """Put the parts of a model together."""

    def put(pairs: tuple[tuple, ...]):
        locals_, data = zip(*pairs, strict=True)
        own = [len(one.images) for one in data]

        def of(values: tuple):
            if isinstance(values[0], tuple):
                return tuple(map(of, zip(*values, strict=True)))
            return np.concatenate(values) if [len(value) for value in values] == own else values[0]

        mask = None if data[0].mask is None else of(tuple(one.mask for one in data))
        images = of(tuple(one.images for one in data))
        return type(locals_[0])(*map(of, zip(*locals_, strict=True))), LayerData(images, mask)

    return with_pairs(parts[0], [put(pairs) for pairs in zip(*map(pairs_of, parts), strict=True)])


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
    for at, own in _batches_of(images):
        path = None if folder is None else str(folder / f"images-{first_image + at:012d}.nc")
        mine = partial(work, **{name: values[at : at + BATCH] for name, values in by_image.items()})
        futures.append(client.submit(_kept, mine, own, first_image + at, path, pure=False))
    found = client.gather(futures)
    if folder is not None:
        return netcdf.open_several(found, IMAGE)
    return xr.concat(found, IMAGE, combine_attrs="override")


def infer_layers(
    fitted: Pretrained, images: Images, burn_in: int, collect: int, seed: int, *, client: Client | None = None
) -> tuple[xr.Dataset, ...]:
    """`gdd.inference.fixed_dictionary.infer_layers` on all workers, a batch of the images a task: the same bits."""
    some, client = _light(fitted), current(client)
    infer = fixed_dictionary.infer_layers
    parts = [
        client.submit(_alone, infer, some, own, burn_in, collect, seed, first_image=at, pure=False)
        for at, own in _batches_of(images)
    ]
    return tuple(xr.concat(layer, IMAGE) for layer in zip(*client.gather(parts), strict=True))


def _light(trained: Pretrained | Refined) -> Pretrained | Refined:
    """Return the model with no image but the first, and the mean noise precision where images have one each."""
    noise = [local.gamma_e.mean(axis=0, keepdims=True) for local, _ in pairs_of(trained)]
    pairs = zip(pairs_of(of_images(trained, slice(1))), noise, strict=True)
    return with_pairs(trained, [(local._replace(gamma_e=gamma_e), data) for (local, data), gamma_e in pairs])


def _batches_of(images: Images) -> Iterator[tuple[int, Images]]:
    for at in range(0, check_images(images), BATCH):
        yield at, images[at : at + BATCH]


def _kept(work: Callable, own: Images, first_image: int, path: str | None) -> xr.Dataset | str:
    """Result for some images, or the path of the file that has it."""
    found = _alone(work, own, first_image=first_image)
    if path is None:
        return found
    try:
        netcdf.write(found, Path(path))
    except netcdf.UNWRITABLE as error:
        raise GddError(f"folder: cannot write {path} ({error}); free space or name another folder") from error
    return path


def _alone(work: Callable, *arguments, **options):
    """Run a task by itself in its process; labelled images are first read, by this thread."""
    with one_task():
        arguments = [one.load(scheduler="synchronous") if isinstance(one, xr.DataArray) else one for one in arguments]
        return work(*arguments, **options)


# ---- independent tasks


def each(work: Callable, tasks: Iterable[tuple], client: Client | None = None) -> Iterator[Any]:
    """Yield ``work(*task)`` of every task in order, as each is done; a lost worker's tasks are done again by others.

    ``work`` and the tasks travel, so both must be picklable.
    """
    futures = [current(client).submit(_alone, work, *task, pure=False) for task in tasks]
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
    return code_checksum(), f"numpy {np.__version__}", f"numba {numba.__version__}", binding.get_host_cpu_name(), *blas


def check_images(images: Images) -> int:
    """Return the number of images; GddError unless they are an array or a DataArray with four axes."""
    check_kind("images", images, (np.ndarray, xr.DataArray))
    if images.ndim != len(IMAGES) or not len(images) or getattr(images, "dims", IMAGES)[0] != IMAGE:
        raise GddError(f"images: shape {images.shape} given; one of axes {IMAGES} is needed, images first")
    return check_whole("images", len(images), 1)
