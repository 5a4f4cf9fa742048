"""Lets papermill read a chapter as it is written, however its file is named.

Papermill chooses a handler by the beginning of a path. ``pyproject.toml`` names this one for all beginnings that a
chapter's path may have, from the root of the checkout, from inside ``book/`` and from anywhere.

A module of its own, because papermill loads it while it is itself being imported.
"""

from __future__ import annotations

import os

import jupytext
import nbformat

from gdd.base.checks import GddError
from gdd.base.files import user_path


class ChapterHandler:
    """Reads a text (``.md``) as a notebook; whatever else is named is left to papermill's handler of local files."""

    listdir, pretty_path = staticmethod(os.listdir), staticmethod(str)

    @staticmethod
    def read(path: str) -> str:
        """Text of the chapter as notebook JSON."""
        if not path.endswith(".md"):
            return _local().read(path)
        try:
            return nbformat.writes(jupytext.read(user_path("chapter", path)))
        except OSError as error:
            raise GddError(f"chapter: {path} cannot be read ({error}); name a page of book/") from error

    @staticmethod
    def write(content: str, path: str) -> None:
        """Write a notebook; a chapter's own text is never overwritten by its outputs."""
        if path.endswith(".md"):
            raise GddError(f"output {path}: the name of a notebook (.ipynb) is needed")
        _local().write(content, path)


def _local():
    from papermill.iorw import papermill_io  # here: it is not there yet while it loads this module

    return papermill_io.get_handler("local")
