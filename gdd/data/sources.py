"""Where the files of a data set are: in ``GDD_DATA``, in the user's cache, or fetched into that cache.

What is checked is the *content* (decompressed numbers, bytes of the pictures), because the same data are
distributed in differently compressed files.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import platformdirs

from gdd.base.checks import GddError, shown

LARGEST_PICTURE = 2**26  # bytes of a file in an archive; the pictures have some thousands


class SourceFile(NamedTuple):
    """A file of a data set: where it lies under a data folder, where it comes from, what it must contain."""

    dataset: str
    name: str
    url: str
    transfer_hash: str  # of the file behind the url, as published
    member: str | None = None  # path of the file in the zip archive behind the url
    unpacked: str | None = None  # folder that may stand in for an archive
    content: str | None = None  # sha256 of the content


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_CALTECH = "https://data.caltech.edu/records/"

# transfer hashes: the published MD5 of the compressed files; contents: sha256 of the decompressed idx files, whose
# MD5 are the published ones, and of the pictures as in `tree_index`
SOURCES = (
    SourceFile(
        "mnist",
        "train-images-idx3-ubyte.gz",
        _MNIST + "train-images-idx3-ubyte.gz",
        "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        content="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    SourceFile(
        "mnist",
        "train-labels-idx1-ubyte.gz",
        _MNIST + "train-labels-idx1-ubyte.gz",
        "md5:d53e105ee54ea40749a09fcbcd1e9432",
        content="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    SourceFile(
        "mnist",
        "t10k-images-idx3-ubyte.gz",
        _MNIST + "t10k-images-idx3-ubyte.gz",
        "md5:9fb629c4189551a2d022fa330f9573f3",
        content="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    SourceFile(
        "mnist",
        "t10k-labels-idx1-ubyte.gz",
        _MNIST + "t10k-labels-idx1-ubyte.gz",
        "md5:ec29112dd5afa0611ce80d1b7f02629c",
        content="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    SourceFile(
        "caltech101",
        "101_ObjectCategories.tar.gz",
        _CALTECH + "mzrjq-6wc02/files/caltech-101.zip",
        "md5:3138e1922a9193bfa496528edbbc45d0",
        member="caltech-101/101_ObjectCategories.tar.gz",
        unpacked="101_ObjectCategories",
        content="951b982f7e4f4cf1bd67e90fc3a7a408ce82cfecdd44e9f36d8de7b073f441ee",
    ),
    SourceFile(
        "caltech256",
        "256_ObjectCategories.tar",
        _CALTECH + "nyy15-4j048/files/256_ObjectCategories.tar",
        "md5:67b4f42ca05d46448c6bb8ecd2220f6d",
        unpacked="256_ObjectCategories",
    ),
)


class Found(NamedTuple):
    """A file of a data set: ``path`` is None where it is missing."""

    dataset: str
    name: str
    path: Path | None
    url: str


class Inventory(tuple):
    """The files of the data sets, each a ``Found``; as text, a line each."""

    def __str__(self) -> str:
        return "\n".join(f"{f.dataset:12}{f.name:30}{f.path or f'missing; from {f.url}'}" for f in self)


def digits_file() -> Path:
    """The file of scikit-learn's handwritten digits, installed with it."""
    return Path(str(files("sklearn.datasets.data") / "digits.csv.gz"))


def inventory() -> Inventory:
    """List every file that a data set needs, and where it was found; nothing is fetched."""
    digits = Found("digits", "digits.csv.gz", digits_file(), "installed with scikit-learn")
    return Inventory((digits, *(Found(s.dataset, s.name, _find(s), s.url) for s in SOURCES)))


def fetch(dataset: str) -> Inventory:
    """Fetch into the cache the files of a data set that are missing; return where all of them are now.

    Raises
    ------
    GddError
        An unknown name; a file that cannot be fetched.
    """
    known = inventory()
    if dataset not in {f.dataset for f in known}:
        names = ", ".join(dict.fromkeys(f.dataset for f in known))
        raise GddError(f"name: no data set {dataset!r}; one of {names} is needed")
    for source in SOURCES:
        if source.dataset == dataset:
            locate(source)
    return Inventory(f for f in inventory() if f.dataset == dataset)


def locate(source: SourceFile) -> Path:
    """Find a file in ``GDD_DATA``, then in the cache; fetch it where it is in neither.

    Raises
    ------
    GddError
        If ``GDD_DATA`` is no folder, or the file is missing and cannot be fetched.
    """
    return _find(source) or _fetch_file(source)


def _fetch_file(source: SourceFile) -> Path:
    """Fetch a file into the cache, its published checksum checked; a file there is replaced only by a whole one.

    Raises
    ------
    GddError
        If it cannot be fetched: which file, from where, and where to put it by hand.
    """
    import pooch  # here: its progress bar warns on import inside a notebook, and pages that fetch nothing stay silent

    folder = cache_folder() / source.dataset
    target = folder / source.name
    try:
        archive = Path(source.url).name
        got = pooch.retrieve(
            source.url, source.transfer_hash, fname=archive, path=folder, progressbar=sys.stderr.isatty()
        )
        if source.member is not None:
            partial = target.with_suffix(".partial")
            with zipfile.ZipFile(got) as packed, packed.open(source.member) as member, open(partial, "wb") as out:
                shutil.copyfileobj(member, out)
            os.replace(partial, target)
            os.remove(got)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:  # requests' errors are OSErrors
        raise GddError(
            f"{source.dataset}: {source.name} was found in none of {', '.join(str(r) for r in _roots())}, and could "
            f"not be fetched from {source.url} ({error}). Fetch it by hand"
            + (f", take {source.member} out of it," if source.member else "")
            + f" and put it at {target}, or set GDD_DATA to a folder that holds {source.dataset}/{source.name}"
        ) from error
    return target


def check_content(source: SourceFile, path: Path, digest: str) -> None:
    """Refuse a file whose content is not the published one."""
    if source.content is not None and digest != source.content:
        raise damaged(source.dataset, path, f"its content has sha256 {digest}, {source.content} is needed")


def damaged(dataset: str, path: Path, what: str) -> GddError:
    """The error for a file that cannot be used as it is."""
    return GddError(f"{dataset}: {path} is damaged or not the published file ({what}); delete it and fetch it again")


@lru_cache(maxsize=8)
def tree_index(path: Path, changed: int) -> tuple[tuple[str, ...], str]:
    """Return the names of all pictures ``class/file.jpg``, ascending, and the sha256 of names and bytes.

    The digest does not depend on how the pictures are packed. ``changed`` is the path's time of change: a file
    replaced by another one is read again.
    """
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in pictures(path)}
    names = tuple(sorted(digests))
    return names, hashlib.sha256("".join(f"{digests[n]}  {n}\n" for n in names).encode()).hexdigest()


def pictures(path: Path, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield (``class/file.jpg``, bytes) from a folder of class folders, or from a tar archive of one.

    Stops as soon as every one ``wanted`` was seen. The archive is streamed, not unpacked.
    """
    if path.is_dir():
        chosen = (str(p.relative_to(path).as_posix()) for p in path.glob("*/*.jpg")) if wanted is None else wanted
        for name in sorted(chosen):
            yield name, (path / name).read_bytes()
        return
    left = None if wanted is None else set(wanted)
    _check_end(path)
    try:
        with tarfile.open(path, "r|*") as archive:
            for entry in archive:
                name = entry.name.removeprefix("./").partition("/")[2]  # without the archive's top folder
                if entry.size > LARGEST_PICTURE:
                    raise damaged(path.parent.name, path, f"{shown(entry.name)} claims {shown(entry.size)} bytes")
                is_picture = entry.isfile() and name.count("/") == 1 and name.endswith(".jpg")
                if is_picture and (left is None or name in left):
                    yield name, archive.extractfile(entry).read()
                    if left is not None:
                        left.discard(name)
                        if not left:
                            return
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path.parent.name, path, str(error)) from error


def _check_end(path: Path) -> None:
    """Refuse a cut archive: tarfile takes one cut within a header for a whole one (a compressed one has its digest)."""
    if path.suffix == ".tar":
        with open(path, "rb") as archive:
            size = archive.seek(0, os.SEEK_END)
            archive.seek(max(0, size - 1024))
            if size < 1024 or archive.read().strip(b"\0"):
                raise damaged(path.parent.name, path, "it does not end with two empty blocks, as tar archives do")


def cache_folder() -> Path:
    """Folder of this package in the user's cache; it is not made here."""
    return Path(platformdirs.user_cache_dir("gdd"))


def _roots() -> list[Path]:
    own = os.environ.get("GDD_DATA")
    if not own:
        return [cache_folder()]
    if not Path(own).is_dir():
        raise GddError(f"GDD_DATA: {own!r} is no folder; set it to the folder that holds mnist/ and so on, or unset it")
    return [Path(own), cache_folder()]


def _find(source: SourceFile) -> Path | None:
    for root in _roots():
        for name in (source.name, source.unpacked):
            if name and (root / source.dataset / name).exists():
                return root / source.dataset / name
    return None
