"""Files that are written whole or not at all, whatever ends the process and whenever."""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from gdd.base.checks import GddError, check_kind, shown

#: how an address of another machine begins, also after `pathlib.Path` has taken one of two slashes
URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:/")
#: seconds after which what another machine was writing is a leftover
DAY = 86400.0


def user_path(argument: str, path: str | os.PathLike, folder: bool = False) -> Path:
    """Path of a file, or of a folder, as a user gave it, with ``~`` as the home folder; it may not exist yet."""
    check_kind(argument, path, (str, os.PathLike))
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text or text != text.encode(errors="replace").decode():
        raise GddError(f"{argument}: {shown(text)} given; a path is needed, in text without null characters")
    if URL.match(text):
        raise GddError(f"{argument}: {text} given, an address; a path on this machine is needed")
    if (expanded := os.path.expanduser(text)).startswith("~"):
        raise GddError(f"{argument}: {text} given, and no such home folder is known; write it in full, or ./{text}")
    place = Path(expanded)
    if os.path.exists(place) and not (os.path.isdir if folder else os.path.isfile)(place):
        what = "no folder; name one" if folder else "a folder or a device, which we cannot write or read; name a file"
        raise GddError(f"{argument}: {place} is {what}")
    return place


@contextmanager
def written_whole(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """Give a temporary path; what the block has left there is synced, then takes the place of ``path``.

    What was at ``path`` stays until then, and afterwards at ``previous``, if that is named. Its permissions stay, and a
    symbolic link to it. A block that fails leaves nothing behind. One that is killed leaves its temporary file, which
    the next one removes; one on another machine, or in another container, after a day.

    *Checked:* tests/test_files.py, tests/test_killed.py.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    part = path.with_name(f".{path.name}.{_here()}.{os.getpid()}.{token_hex(4)}.part")  # no other writer's
    try:
        if path.is_file():
            part.touch()
            shutil.copymode(path, part)
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        if previous is not None:
            with suppress(FileNotFoundError):
                os.replace(path, previous)
        os.replace(part, path)
    finally:
        with suppress(OSError):  # it is there only if something failed
            part.unlink()


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes have left of ``path``; what a living one is writing stays."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        *_, place, process, _, _ = ("", "", *part.name.split("."))
        with suppress(OSError):
            dead = place == _here() and process.isdigit() and not _lives(int(process))
            if dead or time.time() - part.stat().st_mtime > DAY:
                part.unlink()


def _here() -> str:
    """Short name of the place in which a process number means one process: a machine since its start, a container."""
    place = platform.node()
    with suppress(OSError):  # only Linux tells these
        place += Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return sha256(place.encode()).hexdigest()[:8]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True
