"""Where the files of the data sets are: in ``GDD_DATA``, in the user's cache, or fetched into that cache.

The *content* is checked (decompressed numbers, bytes of the pictures), because the same data are distributed in
differently compressed files.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import sys
import tarfile
import zlib
from collections.abc import Collection, Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import platformdirs

from gdd.base.checks import GddError, check_choice
from gdd.base.files import user_path

LARGEST_PICTURE = 2**26  # bytes of a file in an archive; the pictures have some thousands


class Source(NamedTuple):
    """A file of a data set: its name under a data folder, where it comes from, what it must contain."""

    dataset: str
    name: str
    url: str
    known_hash: str  # of the file behind the url, as published
    content: str | None = None  # sha256 of the content
    member: str | None = None  # path of the file in the zip archive behind the url


def _mnist(name: str, published: str, content: str) -> Source:
    return Source("mnist", name, "https://ossci-datasets.s3.amazonaws.com/mnist/" + name, "md5:" + published, content)


# The contents' hashes are of the decompressed idx files, whose MD5 are the published ones, and of the pictures as in
# `tree_index`.
SOURCES = (
    _mnist("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873",
           "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    _mnist("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432",
           "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    _mnist("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3",
           "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    _mnist("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c",
           "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    Source("caltech101", "101_ObjectCategories.tar.gz",
           "https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip", "md5:3138e1922a9193bfa496528edbbc45d0",
           "951b982f7e4f4cf1bd67e90fc3a7a408ce82cfecdd44e9f36d8de7b073f441ee",
           "caltech-101/101_ObjectCategories.tar.gz"),
    Source("caltech256", "256_ObjectCategories.tar",
           "https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar",
           "md5:67b4f42ca05d46448c6bb8ecd2220f6d"),
)


class Found(NamedTuple):
    """A file of a data set: ``path`` is None where it is missing."""

    dataset: str
    name: str
    path: Path | None
    url: str


def digits_file() -> Path:
    """The file of scikit-learn's handwritten digits, installed with it."""
    return Path(str(files("sklearn.datasets.data") / "digits.csv.gz"))


def inventory() -> list[Found]:
    """List every file that a data set needs, and where it was found; nothing is fetched."""
    digits = Found("digits", "digits.csv.gz", digits_file(), "installed with scikit-learn")
    return [digits, *(Found(s.dataset, s.name, _find(s), s.url) for s in SOURCES)]


def fetch(dataset: str) -> list[Found]:
    """Fetch into the cache the files of a data set that are missing; return where all of them are now."""
    check_choice("name", dataset, tuple(dict.fromkeys(found.dataset for found in inventory())))
    for source in SOURCES:
        if source.dataset == dataset:
            locate(source)
    return [found for found in inventory() if found.dataset == dataset]


def locate(source: Source) -> Path:
    """Find a file in ``GDD_DATA``, then in the cache; fetch it where it is in neither."""
    return _find(source) or _fetch_file(source)


def _find(source: Source) -> Path | None:
    # what is unpacked may stand in: a file or a tar archive without .gz, a folder for an archive
    names = (source.name, source.name.removesuffix(".gz"), source.name.partition(".tar")[0])
    paths = (root / source.dataset / name for root in _roots() for name in names)
    return next((path for path in paths if path.exists()), None)


def _roots() -> list[Path]:
    own = os.environ.get("GDD_DATA")
    folder = user_path("GDD_DATA", own, folder=True) if own else None
    if folder and not folder.is_dir():
        raise GddError(f"GDD_DATA: {own!r} is no folder; set it to the folder that holds mnist/ and so on, or unset it")
    return [*([folder] if folder else []), cache_folder()]


def cache_folder() -> Path:
    """Folder of this package in the user's cache; it is not made here."""
    return Path(platformdirs.user_cache_dir("gdd"))


def _fetch_file(source: Source) -> Path:
    import pooch  # here: its progress bar warns on import inside a notebook, and pages that fetch nothing stay silent

    folder, archive = cache_folder() / source.dataset, Path(source.url).name
    target = folder / source.name
    unzip = pooch.Unzip([source.member], extract_dir=".") if source.member else None
    try:
        got = pooch.retrieve(source.url, source.known_hash, archive, folder, unzip, progressbar=sys.stderr.isatty())
        if source.member:
            Path(got[0]).replace(target)
            (folder / archive).unlink()
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        raise GddError(
            f"{source.dataset}: {source.name} was found in none of {', '.join(str(r) for r in _roots())}, and could "
            f"not be fetched from {source.url} ({error}). Fetch it by hand"
            + (f", take {source.member} out of it," if source.member else "")
            + f" and put it at {target}, or set GDD_DATA to a folder that holds {source.dataset}/{source.name}"
        ) from error
    return target


def check_content(source: Source, path: Path, digest: str) -> None:
    """Refuse a file whose content is not the published one."""
    if source.content is not None and digest != source.content:
        raise damaged(path, f"its content has sha256 {digest}, {source.content} is needed")


def damaged(path: Path, what: object) -> GddError:
    """The error for a file that cannot be used as it is."""
    return GddError(f"{path} is damaged or not the published file ({what}); delete it and fetch it again")


@lru_cache(maxsize=8)
def tree_index(path: Path, changed: int) -> tuple[tuple[str, ...], str]:
    """Return the names of all pictures ``class/file.jpg``, ascending, and the sha256 of names and bytes.

    The digest does not depend on how the pictures are packed. ``changed`` is the path's time of change: a file
    replaced by another one is read again.
    """
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in pictures(path)}
    lines = (f"{digests[name]}  {name}\n" for name in sorted(digests))
    return tuple(sorted(digests)), hashlib.sha256("".join(lines).encode()).hexdigest()


def pictures(path: Path, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield (``class/file.jpg``, bytes) from a folder of class folders, or from a tar archive of one.

    Stops as soon as every one ``wanted`` was seen. The archive is streamed, not unpacked.
    """
    if path.is_dir():
        names = (p.relative_to(path).as_posix() for p in path.glob("*/*.jpg")) if wanted is None else wanted
        for name in sorted(names):
            yield name, (path / name).read_bytes()
        return
    left = None if wanted is None else set(wanted)
    _check_end(path)
    try:
        with tarfile.open(path, "r|*") as archive:
            for entry in archive:
                if entry.size > LARGEST_PICTURE:
                    raise damaged(path, f"a file in it claims {entry.size} bytes")
                name = entry.name.removeprefix("./").partition("/")[2]  # without the archive's top folder
                is_picture = entry.isfile() and name.count("/") == 1 and name.endswith(".jpg")
                if is_picture and (left is None or name in left):
                    yield name, archive.extractfile(entry).read()
                    if left is not None:
                        left.remove(name)
                        if not left:
                            return
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, error) from error


def _check_end(path: Path) -> None:
    """Refuse a truncated tar archive: tarfile may read one as whole. (A compressed one has a checksum of its own.)"""
    if path.suffix == ".tar":
        with open(path, "rb") as archive:
            archive.seek(max(0, path.stat().st_size - 1024))
            last = archive.read()
        if len(last) < 1024 or last.strip(b"\0"):
            raise damaged(path, "it does not end with two empty blocks, as tar archives do")
