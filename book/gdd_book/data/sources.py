"""Where the files of the data sets are: in ``GDD_DATA``, in the user's cache, or fetched into that cache by pooch.

The *content* is checked, because the same data are distributed in differently compressed files.
"""

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


class Source(NamedTuple):
    """A file of a data set: its name under a data folder, where it comes from, what it must contain."""

    dataset: str
    name: str
    url: str
    published: str = ""  # MD5 of the file behind the url
    content: str | None = None  # sha256 of the content; None: not known, an archive must be the published file
    member: str | None = None  # path of the file in the zip archive behind the url

    @property
    def path(self) -> Path | None:
        """Where the file is, in ``GDD_DATA`` or in the cache; None where it is missing."""
        if self.dataset == "digits":
            return Path(str(files("sklearn.datasets.data") / self.name))
        # what is unpacked may stand in: a file or a tar archive without .gz, a folder for an archive
        names = self.name, self.name.removesuffix(".gz"), self.name.partition(".tar")[0]
        paths = (root / self.dataset / name for root in _roots() for name in names)
        return next((path for path in paths if path.exists()), None)

    def check(self, path: Path, digest: str) -> None:
        """Refuse a file whose content is not the published one."""
        if self.content and digest != self.content:
            raise damaged(path, f"its content has sha256 {digest}, {self.content} is needed")


def _mnist(name: str, published: str, content: str) -> Source:
    return Source("mnist", name, f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}", published, content)


# The contents' hashes are of the decompressed idx files, whose MD5 are the published ones, and of the pictures as in
# `tree_index`.
CALTECH = "https://data.caltech.edu/records"
SOURCES = (
    Source("digits", "digits.csv.gz", "installed with scikit-learn"),
    _mnist("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873",
           "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    _mnist("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432",
           "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    _mnist("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3",
           "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    _mnist("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c",
           "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    Source("caltech101", "101_ObjectCategories.tar.gz", f"{CALTECH}/mzrjq-6wc02/files/caltech-101.zip",
           "3138e1922a9193bfa496528edbbc45d0", "951b982f7e4f4cf1bd67e90fc3a7a408ce82cfecdd44e9f36d8de7b073f441ee",
           "caltech-101/101_ObjectCategories.tar.gz"),
    Source("caltech256", "256_ObjectCategories.tar", f"{CALTECH}/nyy15-4j048/files/256_ObjectCategories.tar",
           "67b4f42ca05d46448c6bb8ecd2220f6d"),
)


def files_of(dataset: str) -> list[Source]:
    """Files that a data set needs; nothing is fetched."""
    check_choice("name", dataset, tuple(dict.fromkeys(source.dataset for source in SOURCES)))
    return [source for source in SOURCES if source.dataset == dataset]


def is_here(dataset: str) -> bool:
    """Whether every file of a data set is on this machine."""
    return all(source.path for source in files_of(dataset))


def cache_folder() -> Path:
    """Folder of this package in the user's cache; it is not made here."""
    return Path(platformdirs.user_cache_dir("gdd"))


def _roots() -> list[Path]:
    chosen = os.environ.get("GDD_DATA")
    folders = [user_path("GDD_DATA", chosen, folder=True)] if chosen else []
    if folders and not folders[0].is_dir():
        raise GddError(f"GDD_DATA: {chosen!r} is no folder; give the one that holds mnist/ and so on, or unset it")
    return [*folders, cache_folder()]


def locate(source: Source) -> Path:
    """Find a file in ``GDD_DATA``, then in the cache; fetch it where it is in neither."""
    return source.path or _fetch(source)


def _fetch(source: Source) -> Path:
    import pooch  # here: its progress bar warns on import inside a notebook, and pages that fetch nothing stay silent

    folder, archive, bar = cache_folder() / source.dataset, Path(source.url).name, sys.stderr.isatty()
    target, unzip = folder / source.name, pooch.Unzip([source.member], ".") if source.member else None
    try:
        found = pooch.retrieve(source.url, f"md5:{source.published}", archive, folder, unzip, progressbar=bar)
        if unzip:
            Path(found[0]).replace(target)
            (folder / archive).unlink()
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        fetch = f"fetch it by hand, take {source.member} out of it," if unzip else "fetch it by hand"
        raise GddError(
            f"{source.dataset}: {source.name} is in none of {', '.join(map(str, _roots()))}, and {source.url} could "
            f"not be fetched ({error}); {fetch} and put it at {target}, or in the folder {source.dataset} of GDD_DATA"
        ) from error
    return target


def damaged(path: Path, what: object) -> GddError:
    """The error for a file that cannot be used as it is."""
    return GddError(f"{path} is damaged or not the published file ({what}); delete it and fetch it again")


@lru_cache(maxsize=8)
def tree_index(source: Source, path: Path, changed: int) -> tuple[tuple[str, ...], str]:
    """Names of all pictures ``class/file.jpg``, ascending; sha256 of names and bytes; read again when ``changed``."""
    if source.content is None and path.is_file():  # tarfile may read a truncated archive as whole
        with open(path, "rb") as archive:
            digest = hashlib.file_digest(archive, "md5").hexdigest()
        if digest != source.published:
            raise damaged(path, f"its MD5 is {digest}, {source.published} is needed")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in pictures(path)}
    if not digests:
        raise damaged(path, "no picture of the form class/file.jpg is in it")
    whole = hashlib.sha256("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()).hexdigest()
    source.check(path, whole)
    return tuple(sorted(digests)), whole


def pictures(path: Path, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield (``class/file.jpg``, bytes) from a folder of class folders, or from a tar archive of one, streamed."""
    if path.is_dir():
        names = (found.relative_to(path).as_posix() for found in path.glob("*/*.jpg")) if wanted is None else wanted
        yield from ((name, (path / name).read_bytes()) for name in names)
        return
    try:
        with tarfile.open(path, "r|*") as archive:
            for entry in archive:
                name = entry.name.removeprefix("./").partition("/")[2]  # without the archive's top folder
                is_picture = entry.isfile() and name.count("/") == 1 and name.endswith(".jpg")
                if is_picture and (wanted is None or name in wanted):
                    yield name, archive.extractfile(entry).read()
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, error) from error
