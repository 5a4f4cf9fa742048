"""What stands in a page's head and around the book: version, citation, colours that can be read."""

import re
from types import SimpleNamespace

import pytest
import yaml

import gdd
from gdd_book.figures.style import INK
from gdd_book.pages import head, notebooks

STYLE = (notebooks.BOOK / "_static" / "companion.css").read_text(encoding="utf-8")
#: behind the text of a page, in the theme's light and dark form
LIGHT, DARK = "#ffffff", "#14181e"


def test_a_page_without_a_text_has_none():
    context = {"title": "Index"}
    head.describe(None, "genindex", "", context, None)
    assert context == {"title": "Index"}


def test_version_is_at_the_foot_of_every_page(monkeypatch):
    monkeypatch.setenv("GDD_BOOK_URL", "https://a.example/gdd")
    config = SimpleNamespace(html_theme_options={"show_navbar_depth": 2}, html_baseurl="")
    head.configure(None, config)
    assert config.version == gdd.__version__ and config.html_baseurl == "https://a.example/gdd/"
    assert config.html_theme_options == {"show_navbar_depth": 2, "extra_footer": f"Version {gdd.__version__}"}


def test_a_page_leads_to_a_repository_where_there_is_one(monkeypatch):
    config = SimpleNamespace(html_theme_options={}, html_baseurl="")
    head.configure(None, config)
    assert "repository_url" not in config.html_theme_options
    monkeypatch.setenv("GDD_BOOK_REPOSITORY", "https://github.com/a/gdd/")
    head.configure(None, config)
    assert config.html_theme_options["repository_url"] == "https://github.com/a/gdd"
    assert config.html_theme_options["use_source_button"]


def test_citation_is_that_of_the_file():
    cited = yaml.safe_load((notebooks.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    text = notebooks.text_path("references").read_text(encoding="utf-8")
    (author,) = cited["authors"]
    written = {"author": f"{{{author['name']}}}", "title": cited["title"], "version": cited["version"],
               "license": cited["license"]}
    entry = re.search(r"@software\{gdd,\n(.*?)\n\}", text, re.S)[1]
    assert dict(re.findall(r"(\w+) += \{(.*)\}", entry)) == written


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Of two colours, as the Web Content Accessibility Guidelines count it: 4.5 is enough for text."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


#: where a colour stands, and the colour: words, numbers on the bar of verdicts, words in figures
COLOURED = re.findall(r"^([^{}/@]+?)\{[^}]*(?<!-)color: (#\w{6})", STYLE, re.MULTILINE)
COLOURED += re.findall(r"^(a\.verdicts \.[\w-]+) \{ background: (#\w{6})", STYLE, re.MULTILINE) + [*INK.items()]


@pytest.mark.parametrize(("where", "colour"), COLOURED)
def test_words_can_be_read(where, colour):
    assert contrast(colour, DARK if "dark" in where else LIGHT) >= 4.5
