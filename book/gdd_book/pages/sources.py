"""In Sphinx: a page for each file of the library, of the checks and of the tests that the book leads to.

An address such as ``sources/gdd/projection.html#project`` shows the file there. These pages are in no list of
contents: one comes to them from the index of equations, from a block "In code" and from the API reference.
"""

from __future__ import annotations

import ast
import inspect
import os.path
import re
from collections.abc import Iterator
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx

from gdd_book import checkout

ROOT = checkout.BOOK.parent
TESTS = ROOT / "tests"
FOLDER = "book/sources"


def address(page: str, file: str | Path, name: str = "") -> str:
    """Address of a definition (dotted, within its file), or of the whole file, from a page such as ``book/api``."""
    if name and name not in definitions(file):
        raise KeyError(f"{file}: defines no {name}")
    return relative(page_of(file), page) + (f"#{name}" if name else "")


def relative(target: str, page: str) -> str:
    """Address of a page from another one."""
    return os.path.relpath(f"{target}.html", Path(page).parent)


def page_of(file: str | Path) -> str:
    """Name of the page that shows a file of this repository."""
    return f"{FOLDER}/{Path(file).resolve().relative_to(ROOT).with_suffix('').as_posix()}"


def definitions(file: str | Path) -> dict[str, int]:
    """Line, from 1, of every function and class of a file and of every method, decorators included."""
    found = {}

    def walk(body: list[ast.stmt], above: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[above + node.name] = min([node.lineno, *(line.lineno for line in node.decorator_list)])
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{above}{node.name}.")

    walk(ast.parse(checkout.text(Path(file))).body, "")
    return found


def place(found: object) -> tuple[str, str] | None:
    """File of a module, class, function or property, and its name there; None for anything else."""
    if inspect.ismodule(found):
        return inspect.getsourcefile(found), ""
    found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
    found = inspect.unwrap(found)
    if not (inspect.isfunction(found) or inspect.isclass(found)):
        return None
    return inspect.getsourcefile(found), found.__qualname__


def shown() -> list[Path]:
    """Files that have a page: the library, what the index names, and the tests that either names."""
    library = sorted((ROOT / "gdd").rglob("*.py"))
    listed = checkout.text(checkout.BOOK / "index.yml")
    checks = {f"{module.replace('.', '/')}.py" for module in re.findall(r"gdd_book[\w.]+(?=\.)", listed)}
    tests = {name for text in (listed, *map(checkout.text, library)) for name in re.findall(r"\btest_\w+\.py", text)}
    return [*library, *sorted(checkout.BOOK / name for name in checks), *sorted(TESTS / name for name in tests)]


def body(file: Path) -> str:
    """A file as HTML, with an anchor at every definition."""
    text = checkout.text(file)
    lines = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    for name, line in definitions(file).items():
        lines[line - 1] = f'<span id="{name}"></span>{lines[line - 1]}'
    name = file.relative_to(ROOT).as_posix()
    code = "\n".join(lines)
    return f'<h1>{name}</h1><div class="highlight source"><pre>{code}</pre></div>'


def pages(app: Sphinx) -> Iterator[tuple[str, dict, str]]:
    """Every page, as Sphinx wants it."""
    for file in shown():
        yield page_of(file), {"title": file.name, "body": body(file)}, "page.html"
