"""In Sphinx: the first use of a word of the glossary on a page shows its meaning, and leads there."""

import re

from docutils import nodes
from sphinx.application import Sphinx

from gdd_book.pages import notebooks

#: the page that has it
HOME = "book/notation"
#: words that have an everyday meaning too
EVERYDAY = {"active", "calibration", "code", "component", "conditional", "fixed", "layer", "plane", "record", "weight"}
#: what has text of its own kind, or leads somewhere already
CLOSED = (nodes.reference, nodes.literal, nodes.math, nodes.title, nodes.caption, nodes.legend, nodes.table, nodes.raw,
          nodes.container)


def explain_words(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Make a link of the first use of every word, in a paragraph, whose title is what the glossary says of it."""
    if page == HOME or page.removeprefix("book/") not in notebooks.chapters():
        return
    address = app.builder.get_relative_uri(page, HOME)
    texts = [text for text in doctree.findall(nodes.Text) if _is_open(text)]
    for item in app.env.get_doctree(HOME).findall(nodes.definition_list_item):
        words = (text for text in item[-1].findall(nodes.Text) if not isinstance(text.parent, nodes.math))
        term, meaning = item[0], "".join(words).replace(" ()", "")
        if not term["ids"] or term.astext() in EVERYDAY:
            continue
        for place, text in enumerate(texts):
            if found := re.search(rf"\b{re.escape(term.astext())}s?\b", text, re.IGNORECASE):
                to = f"{address}#{term['ids'][0]}"
                link = nodes.reference("", found[0], refuri=to, reftitle=meaning, internal=True, classes=["word"])
                parts = nodes.Text(text[: found.start()]), nodes.Text(text[found.end() :])
                text.parent.replace(text, [parts[0], link, parts[1]])
                texts[place : place + 1] = parts
                break


def _is_open(text: nodes.Text) -> bool:
    """Whether a text stands in a paragraph, and in nothing that is closed."""
    around, node = [], text.parent
    while node is not None:
        around.append(node)
        node = node.parent
    return any(isinstance(one, nodes.paragraph) for one in around) and not any(
        isinstance(one, CLOSED) for one in around)
