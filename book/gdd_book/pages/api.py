"""In Sphinx: the API reference from docstrings, and links to it from names in the text of every page.

`sphinx.ext.autodoc` and `sphinx.ext.napoleon` read the docstrings. Ours say axes and units where numpy's have a type,
and close with Source, Departs and Checked; both are put here into a form that these two understand.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from contextlib import suppress
from functools import cache

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

import gdd
from gdd_book.pages import sources

PAGE = "book/api"
#: sections whose entries are `name : words`
LISTED = ("Parameters", "Attributes")
ENTRY = re.compile(r"(?P<names>\*{0,2}[A-Za-z_][\w, *]*?) : (?P<words>.*)")
CLOSING = re.compile(r"\*?(Source|Departs|Checked):\*?\s+(.*)")
FIELD = re.compile(r"    (\w+): ([^#=]*[^#=\s])(?: = \w+)?(?:\s+# (.*))?")


def adapt(app: Sphinx, what: str, name: str, found: object, options: dict, lines: list[str]) -> None:
    """Put one docstring into the form that napoleon reads; in place, as autodoc wants it."""
    if inspect.isclass(found) and hasattr(found, "_fields"):
        lines += ["", *fields(found)]
    lines[:] = closed(listed(lines))


def keep_property(app: Sphinx, what: str, name: str, found: object, options: dict, lines: list[str]) -> None:
    """Undo what napoleon makes of a property's first line, whose words before a colon are no type."""
    if what == "property":
        lines[:] = [*inspect.getdoc(found).splitlines(), ""]


def shorten(app: Sphinx, what: str, name: str, found: object, options: dict, arguments: str | None, result: str | None):
    """A signature without the modules of its types, and with dots where a default is made anew each time."""
    return arguments and re.sub(r"~(\w+\.)+", "", arguments).replace("<factory>", "..."), result


def listed(lines: list[str]) -> list[str]:
    """Lines with the words of an entry below its name, where napoleon expects them, not a type."""
    section, changed = "", []
    for number, line in enumerate(lines):
        if set(lines[number + 1 : number + 2]) == {"-" * len(line)} and line:
            section = line
        entry = ENTRY.fullmatch(line) if section in LISTED else None
        changed += [entry["names"], f"    {entry['words'].strip()}"] if entry else [line]
    return changed


def closed(lines: list[str]) -> list[str]:
    """Lines with Source, Departs and Checked as a list of fields, and the files of tests as links."""
    changed, inside = [], False
    for line in lines:
        closing = CLOSING.match(line)
        if closing:
            changed += [] if inside else [""]
            line, inside = f":{closing[1]}: {closing[2]}", True
        elif inside and line.strip():
            line = f"    {line.strip()}"
        if inside:
            line = re.sub(r"tests/(test_\w+)\.py", lambda found: _test_link(found[1]), line)
        changed.append(line)
    return changed


def fields(found: type) -> list[str]:
    """Fields of a named tuple as a section; what they hold stands in comments beside them."""
    rows = filter(None, map(FIELD.fullmatch, inspect.getsource(found).splitlines()))
    entries = [f"{row[1]} : ``{row[2]}``" + (f", {row[3]}" if row[3] else "") for row in rows]
    return ["Attributes", "----------", *entries]


def ours_alone(app: Sphinx, what: str, name: str, found: object, skip: bool, options: dict) -> bool | None:
    """Leave out what a class has from elsewhere, such as scikit-learn."""
    found = found.fget if isinstance(found, property) else found
    return None if (getattr(found, "__module__", None) or "").partition(".")[0] == "gdd" else True


def without_entry(app: Sphinx, env: BuildEnvironment, node: nodes.Element, words: nodes.Element) -> nodes.Node | None:
    """A name in a docstring that has no entry: of ours a link to the source, or an error; of other packages plain."""
    if node.get("refdomain") != "py":
        return None
    if not node["reftarget"].startswith("gdd."):
        return words
    place = place_of(node["reftarget"])
    return place and (nodes.reference("", "", words, refuri=sources.address(node["refdoc"], *place)))


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make of `gdd.project` and the like, in the text of a page, a link to its entry, or to its source."""
    entries = app.env.domaindata["py"]["objects"]
    for word in list(doctree.findall(nodes.literal)):
        name = full_name(word.astext())
        if not name.startswith("gdd.") or isinstance(word.parent, nodes.reference | nodes.title | nodes.caption):
            continue
        if name in entries:
            entry = entries[name]
            link = make_refnode(app.builder, docname, entry.docname, entry.node_id, word.deepcopy())
            word.replace_self(link)
        elif place := place_of(name):
            word.replace_self(nodes.reference("", "", word.deepcopy(), refuri=sources.address(docname, *place)))


@cache
def place_of(name: str) -> tuple[str, str] | None:
    """File, and name in it, of a module, class or function of the library; None where there is no such."""
    with suppress(ImportError, AttributeError, ValueError):  # the last of what is no dotted name
        return sources.place(pkgutil.resolve_name(name))
    return None


def full_name(word: str) -> str:
    """Dotted name that a word of code stands for: without arguments; with ``gdd.`` if its first letter is large."""
    name = re.sub(r"\(.*", "", word)
    return f"gdd.{name}" if name[:1].isupper() and name.partition(".")[0] in gdd.__all__ else name


def source_of(domain: str, info: dict) -> str | None:
    """Address of an entry's source, for `sphinx.ext.linkcode`."""
    place = sources.place(pkgutil.resolve_name(f"{info['module']}:{info['fullname']}"))
    return place and sources.address(PAGE, *place)


def _test_link(name: str) -> str:
    return f"`{name}.py <{sources.address(PAGE, sources.TESTS / f'{name}.py')}>`__"


def configure(app: Sphinx, config) -> None:
    """Tell `sphinx.ext.linkcode` where sources are."""
    config.linkcode_resolve = source_of
