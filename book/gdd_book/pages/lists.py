"""Claims of the paper, what is done of it, and its misprints: three lists of the book, read and shown only here."""

import re
from collections import Counter, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import yaml
from IPython.display import HTML

from gdd_book import checkout, paper_values, records
from gdd_book.pages import index

CLAIMS, ELEMENTS, ERRATA = (checkout.BOOK / f"{name}.yml" for name in ("claims", "elements", "errata"))
ERRATA_PAGE = "model/errata"

#: what each verdict on a claim, each status of an element means; for an erratum, the answer and what it means
VERDICTS, STATUSES, MATTERS = yaml.safe_load(checkout.text(checkout.BOOK / "answers.yml")).values()
# fields as the files explain them, behind the part that an entry stands in
Claim = namedtuple("Claim", "part claim place verdict found extent scale evidence number ours",
                   defaults=("", "", None, {}, {}))
Element = namedtuple("Element", "part element place status differs page records", defaults=("", None, ()))
Erratum = namedtuple("Erratum", "part number what place matters pages tests", defaults=((), ()))


def claims() -> list[Claim]:
    """Every claim, in the order of the list."""
    return _read(CLAIMS, Claim)


def elements() -> list[Element]:
    """Every element, in the order of the paper."""
    return _read(ELEMENTS, Element)


def errata() -> list[Erratum]:
    """Every erratum, in the order of the page."""
    return _read(ERRATA, Erratum)


def bar(chosen: Iterable[Claim]) -> HTML:
    """A bar of these claims' verdicts, as wide as their numbers, that leads to the page of the claims."""
    counts = Counter(one.verdict for one in chosen)
    shown = [(verdict, _style(verdict), counts[verdict]) for verdict in VERDICTS if counts[verdict]]
    wide = "".join(f'<span class="{style}" style="flex-grow: {count}">{count}</span>' for _, style, count in shown)
    words = "".join(f'<span><span class="{style}"></span>{count} {verdict}</span>' for verdict, style, count in shown)
    return HTML(f'<a class="verdicts" href="claims.html"><span>{wide}</span><span>{words}</span></a>')


def legend(chosen: Sequence[Claim | Element], known: Mapping[str, str]) -> HTML:
    """How many of these have each answer that is known, how many of those have records of runs, and what it means."""
    answers = [one.verdict if known is VERDICTS else one.status for one in chosen]
    ran = [answer for answer, one in zip(answers, chosen, strict=True) if getattr(one, "records", ())]
    rows = []
    for answer, words in known.items():
        runs = f" ({ran.count(answer)} with records of runs)" if answer in ran else ""
        rows.append(("", (str(answers.count(answer)), _mark(answer), f"{words}{runs}")))
    return html_table((), rows, "claims elements")


def claims_table(chosen: Iterable[Claim]) -> HTML:
    """Claims with verdicts and numbers; a click on one shows what stands behind it."""
    head = ("The paper says", "Verdict", "Reported", "Ours", "Our run")
    return html_table(head, [(one.part, _claim_cells(one)) for one in chosen])


def elements_table(chosen: Iterable[Element]) -> HTML:
    """Elements with what differs, the page that shows them, and their records."""
    rows = []
    for one in chosen:
        shown = f'<a href="{index.link(one.page)}">{title(one.page.partition("#")[0])}</a>' if one.page else ""
        if one.records:
            names = "<br>".join(map(escape, one.records))
            shown += f"<details><summary>records</summary><small>{names}</small></details>"
        what = f"{escape(one.element)}<small>{escape(one.place)}</small>"
        rows.append((one.part, (what, _mark(one.status), escape(one.differs), shown)))
    return html_table(("The paper has", "Status", "What differs", "Shown on"), rows, "claims elements")


def errata_table(chosen: Sequence[Erratum]) -> HTML:
    """How many errata there are, and folded below it what the answers mean and a row for each."""
    counts = Counter(one.matters for one in chosen)
    head = "; ".join(f"{words}: {counts[key]}" for key, (words, _) in MATTERS.items())
    means = "".join(f"<li><b>{words}</b>: {meaning}</li>" for words, meaning in MATTERS.values())
    table = html_table(("", "What", "Does it matter", "Shown"), [(one.part, _erratum_cells(one)) for one in chosen],
                   "claims errata")
    return HTML(f"<details><summary>{len(chosen)} entries ({head})</summary><ul>{means}</ul>{table.data}</details>")


def html_table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], style: str = "claims") -> HTML:
    """Table of (part, cells) pairs, with a heading above the first row of every part."""
    body, above = [], ""
    for part, cells in rows:
        body += [f'<tr class="part"><th colspan="{len(head)}">{escape(part)}</th></tr>'] if part != above else []
        body.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        above = part
    heads = "".join(f"<th>{name}</th>" for name in head)
    return HTML(f'<table class="{style}"><thead><tr>{heads}</tr></thead><tbody>{"".join(body)}</tbody></table>')


def printed_number(fact: str | None = None, table: str | None = None, row: Mapping = {}, column: str = "") -> str:
    """One number of the paper with its unit: a fact, or the cell of a table in the only row with these entries."""
    if fact:
        known = paper_values.fact(fact)
        return f"{known['value']:g} ({known['unit']})".replace("1e-06", "10⁻⁶")
    frame = paper_values.table(table)
    chosen = frame[[all(entry[key] == value for key, value in row.items()) for _, entry in frame.iterrows()]]
    return f"{chosen[column].item():g} ({frame.attrs['unit']})"


def our_number(record: str, variable: str, select: dict) -> str:
    """Mean of some entries of a record (file name, or an experiment: its fullest run), in %; "" where none is."""
    path = checkout.results() / f"{record}.nc"
    found = records.read(path) if path.is_file() else None if "--" in record else records.fullest(record)
    return "" if found is None else f"{float(found[variable].sel(select).mean()):.3g}\u00a0%"


def _read(path: Path, kind: type) -> list:
    parts = yaml.safe_load(checkout.text(path))
    return [kind(part, **entry) for part, entries in parts.items() for entry in entries]


def title(page: str) -> str:
    """Heading of a page of the book."""
    return escape(re.search("^# (.*)", checkout.text(checkout.BOOK / f"{page}.md"), re.MULTILINE)[1])


def _claim_cells(one: Claim) -> tuple[str, ...]:
    page = f' Page: <a href="{one.evidence}.html">{title(one.evidence)}</a>.' if one.evidence else ""
    printed, _, words = (printed_number(**one.number) if one.number else "").partition(" (")
    detail = f"{one.place}: {words[:-1]}" if words else one.place
    unit = "%" if "%" in words else words.rstrip(")").split(",")[0]
    printed += f"\u00a0{unit}" if unit else ""
    claim = (f"<details><summary>{escape(one.claim)}</summary><small>{escape(detail)}</small>"
             f"<p>{escape(one.found)}{page}</p></details>")
    return claim, _mark(one.verdict, one.extent), escape(printed), our_number(**one.ours) if one.ours else "", one.scale


def _erratum_cells(one: Erratum) -> tuple[str, ...]:
    anchor, up = f'<a href="#{one.number.lower()}">', "../" * ERRATA_PAGE.count("/")
    files = dict.fromkeys(test.partition("::")[0] for test in one.tests)
    shown = [f"{anchor}below</a>", *(f'<a href="{up}{page}.html">{page}</a>' for page in one.pages)]
    return (
        f"{anchor}{one.number}</a>", f"{escape(one.what)}<small>{escape(one.place)}</small>",
        f'<span class="matters {one.matters}">{MATTERS[one.matters][0]}</span>',
        "<br/>".join([*shown, *(f"<small>{name}</small>" for name in files)]),
    )


def _style(answer: str) -> str:
    return answer.replace(" ", "-").replace("'", "")


def _mark(answer: str, below: str = "") -> str:
    """An answer in its colour, with small words below."""
    small = f"<br><small>{escape(below)}</small>" if below else ""
    return f'<span class="verdict {_style(answer)}">{answer}</span>{small}'
