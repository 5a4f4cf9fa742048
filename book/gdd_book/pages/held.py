"""Numbers that the paper does not print and that we set: ``book/held.yml``, read and shown only here."""

from html import escape
from pkgutil import resolve_name
from typing import Any

import yaml
from IPython.display import HTML

from gdd_book import checkout
from gdd_book.pages import index
from gdd_book.pages.lists import html_table, title

PATH = checkout.BOOK / "held.yml"


def load() -> dict[str, list]:
    """``held``: an entry a number; ``printed`` and ``design``: parameters that need none."""
    return yaml.safe_load(checkout.text(PATH))


def value_of(place: str) -> Any:
    """What the code has at ``module:name``, ``module:name.attribute`` or ``module:name[key]``; or the words."""
    if not place.startswith("gdd") or ":" not in place:
        return place
    name, _, key = place.removesuffix("]").partition("[")
    found = resolve_name(name)
    return found[key] if key else found


def _in_words(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{name} {_in_words(one)}" for name, one in found.items())
    if isinstance(found, tuple):
        return ", ".join(map(_in_words, found))
    return f"{found:g}" if isinstance(found, float) else str(found)


def table(not_varied_only: bool = False) -> HTML:
    """A row for each number: its values as the code has them, where it was varied, and what it changes."""
    head, rows = ("Number", "Value", "Varied in", "What it changes"), []
    for one in load()["held"]:
        if not_varied_only and not one["varied"].startswith("not varied"):
            continue
        values = "<br>".join(f"{escape(kind)}: {escape(_in_words(value_of(at)))}" for kind, at in one["value"].items())
        page = f'<a href="{index.link(one["page"])}">{title(one["page"].partition("#")[0])}</a>'
        rows.append(("", (escape(one["name"]), values, escape(one["varied"]), f"{escape(one['matters'])} {page}")))
    return html_table(head, rows, "claims held")
