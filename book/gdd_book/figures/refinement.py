"""Chains of the refinement chapter: records in, figures and tables out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from gdd.base.axes import ATOM, ATOM_COL, ATOM_ROW, DRAW, IMAGE
from gdd_book.figures.style import COLOURS, FONT, finish, new_figure

_STYLES = (("blue", "-"), ("red", "--"), ("green", "-."), ("purple", ":"))
LINES = tuple((COLOURS[name], style) for name, style in _STYLES)
GREY = COLOURS["grey"]


def show_stages(found: xr.Dataset) -> Figure:
    """Every sweep of `gdd_book.experiments.mnist_refinement`: both layers' pretraining, then each refinement, on
    one axis.

    Residual: root mean square of what is left of a number of the layer's input; of a pixel in layer 1 and refinement.
    Log joint: divided by how many numbers are explained, as each stage has another model.
    """
    figure, axes = new_figure(3, 1, height=6.6, sharex=True)
    labels = ("residual,\nroot mean square", "log joint\nper number", "active per image")
    refined = {str(name): found.sel(noise=name) for name in found.noise.values}
    numbers = found.numbers_explained.values
    for panel, label, name in zip(axes, labels, ("residual", "log_joint", "active"), strict=True):
        for layer, values in enumerate(found[f"pre_{name}"].values):
            scale = numbers[layer] if name == "log_joint" else 1
            _draw_from(panel, layer * found.sizes[DRAW], values / scale, GREY, "-", f"pretraining, layer {layer + 1}")
        start = found.pre_residual.size
        for (colour, style), (noise, one) in zip(LINES, refined.items(), strict=False):
            scale = numbers[0] if name == "log_joint" else 1
            _draw_from(panel, start, one[name].values / scale, colour, style, f"refinement, {noise}")
        for border in range(found.sizes[DRAW], start + 1, found.sizes[DRAW]):
            panel.axvline(border, color="#CCCCCC", linewidth=1)
        panel.set_ylabel(label)
    axes[1].set_ylim(*_without_start(axes[1]))
    for panel in (axes[0], axes[2]):
        _logarithmic(panel)
    axes[2].set_xlabel("sweep")
    figure.align_ylabels()
    for number, place in enumerate((0.5, 1.5), 1):
        axes[0].text(place * found.sizes[DRAW], 1.02, f"layer {number}", transform=axes[0].get_xaxis_transform(),
                     ha="center", fontsize=FONT - 2, color=GREY)  # fmt: skip
    lines = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    kept = {label: line for label, line in lines.items() if label.startswith("refinement")}
    figure.legend(kept.values(), kept.keys(), loc="outside upper center", ncols=2, frameon=False, fontsize=FONT - 1)
    return finish(figure)


def show_health(found: xr.Dataset) -> Figure:
    """How freely each refinement moves, sweep by sweep: positions of strong blocks, top coefficients, and gamma_e."""
    figure, axes = new_figure(3, 1, height=6.2, sharex=True)
    for (colour, style), noise in zip(LINES, found.noise.values, strict=False):
        one = found.sel(noise=noise)
        share = moved_share(one).sel(strength=["1 to 3", "above 3"]).isel(pooled_layer=0)
        switched = one.switched_on + one.switched_off
        for (strength, width), panel_share in zip((("1 to 3", 0.8), ("above 3", 2.0)), share.values.T, strict=True):
            _draw_from(axes[0], 0, panel_share, colour, style, f"{noise}; strength {strength}", width)
        _draw_from(axes[1], 0, switched.values, colour, style, "")
        _draw_from(axes[2], 0, one.gamma_e.values, colour, style, "")
    labels = ("share of positions\nthat move", "coefficients switched\nper image", r"$\gamma_e$")
    for panel, label in zip(axes, labels, strict=True):
        panel.set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    axes[1].set_ylim(bottom=0)
    _logarithmic(axes[2])
    axes[2].set_xlabel("sweep of the refinement")
    figure.align_ylabels()
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=FONT - 2)
    return finish(figure)


def health_table(found: xr.Dataset) -> pd.DataFrame:
    """Each refinement at its first sweep and in the mean of its last tenth, as "first, last"."""
    columns = {}
    for noise in found.noise.values:
        one = found.sel(noise=noise)
        lived = int(one.residual.notnull().sum())
        rows = {
            "gamma_e": (one.gamma_e, 0), "residual": (one.residual, 4), "active per image": (one.active, 1),
            "log joint per number": (one.log_joint / one.numbers_explained[0], 3),
            "share of strong positions that move": (moved_share(one).sel(strength="above 3").isel(pooled_layer=0), 3),
            "coefficients switched per image": (one.switched_on + one.switched_off, 2),
        }  # fmt: skip
        last = slice(lived - max(1, lived // 10), lived)
        ends = [(values[0].item(), values[last].mean().item(), d) for values, d in rows.values()]
        columns[f"{noise}, {lived} sweeps"] = [f"{before:.{d}f}, {after:.{d}f}" for before, after, d in ends]
    return pd.DataFrame(columns, list(rows))


def moved_share(found: xr.Dataset) -> xr.DataArray:
    """Share of the visited blocks that came out at another position; NaN where none was visited."""
    return found.blocks_moved / found.blocks_visited.where(found.blocks_visited > 0)


def show_starts(found: xr.Dataset) -> Figure:
    """Refinements from several starts, `gdd_book.experiments.mnist_starts`: one colour a start, one line a seed."""
    labels = {
        "log_joint": "log joint", "residual": "residual,\nroot mean square", "held_out": "held-out digits:\nresidual",
        "active": "active per image",
    }  # fmt: skip
    figure, axes = new_figure(len(labels), 1, height=7.4, sharex=True)
    for panel, (name, label) in zip(axes, labels.items(), strict=True):
        for (colour, style), start in zip(LINES, found.start.values, strict=False):
            for number, values in enumerate(found[name].sel(start=start).values):
                _draw_from(panel, 0, values, colour, style, f"start: {start}" if number == 0 else "")
        panel.set_ylabel(label)
    axes[0].set_ylim(*_without_start(axes[0]))
    axes[0].ticklabel_format(axis="y", scilimits=(0, 0), useMathText=True)
    for panel in axes[1:]:
        _logarithmic(panel)
    axes[-1].set(xscale="log", xlabel="sweep of the refinement")
    axes[-1].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[-1].xaxis.set_minor_formatter(NullFormatter())
    figure.align_ylabels()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False,
                  fontsize=FONT - 2)  # fmt: skip
    return finish(figure)


def starts_table(found: xr.Dataset) -> pd.DataFrame:
    """Mean over seeds, and standard error, of the last quarter of every chain of
    `gdd_book.experiments.mnist_starts`.
    """
    last = _last_quarter(found)
    digits = {"log_joint": 0, "residual": 4, "held_out": 4, "active": 1}
    starts = found.start.values
    columns = {
        name: [_with_error(last[name].sel(start=start).values, d) for start in starts] for name, d in digits.items()
    }
    return pd.DataFrame(columns, starts).rename(columns=lambda name: name.replace("_", " "))


def starts_verdict(found: xr.Dataset, usual: str = "pretrained") -> str:
    """Whether other starts end worse than the usual one: a sentence for each, from the last quarter of the chains.

    Worse or better: by more than two standard errors of the mean difference; chains of one seed share their digits.
    """
    last, lines = _last_quarter(found), []
    for start in (name for name in found.start.values if name != usual):
        words = []
        for name, label, sign in (("log_joint", "log joint", 1), ("held_out", "held-out error", -1)):
            gains = sign * (last[name].sel(start=start) - last[name].sel(start=usual)).values
            gain, error = gains.mean(), 2 * gains.std(ddof=1) / len(gains) ** 0.5
            words.append(f"{label} {'better' if gain > error else 'worse' if gain < -error else 'no different'}")
        lines.append(f"start '{start}' beside '{usual}': {', '.join(words)}")
    return "\n".join(lines)


def _last_quarter(found: xr.Dataset) -> xr.Dataset:
    """Means over the last quarter of every chain."""
    return found.isel({DRAW: slice(-(found.sizes[DRAW] // 4), None)}).mean(DRAW)


def refinement_table(found: xr.Dataset) -> pd.DataFrame:
    """Before and after: medians over atoms for the kept draw, and what layers and projection make of the digits."""
    kept = found.sel(estimate="kept draw")
    columns = {
        "residual": (kept.rms, 3),
        "active per image": (kept.uses.sum(ATOM) / kept.sizes[IMAGE], 1),
        "atoms used by fewer than 5 images": ((kept.uses < 5).sum(ATOM), 0),
        "energy above half Nyquist": (kept.high_frequency_share.median(ATOM), 3),
        "gradient kurtosis": (kept.gradient_kurtosis.median(ATOM), 1),
        "weight at winning positions": (kept.winning_share, 2),
        "projection error, share of energy": (kept.projection_error.median(IMAGE), 2),
    }
    written = {name: [f"{v:.{d}f}" for v in values.values] for name, (values, d) in columns.items()}
    return pd.DataFrame(written, found.model.values).T


def most_used_atoms(found: xr.Dataset, count: int = 25) -> xr.DataArray:
    """Projected atoms that each model uses most, for `show_dictionaries`: draw beside mean, a row for each model."""
    order = np.argsort(-found.uses.values, axis=1, kind="stable")[:, :count]
    chosen = [found.projected_atoms.isel(model=i, atom=atoms) for i, atoms in enumerate(order)]
    return _as_kinds(xr.concat(chosen, "model"))


def bottom_atoms(found: xr.Dataset) -> xr.DataArray:
    """Dictionary of layer 1, arranged likewise."""
    names = {"bottom_atom": ATOM, "bottom_row": ATOM_ROW, "bottom_col": ATOM_COL}
    return _as_kinds(found.bottom_dictionary.rename(names))


def _as_kinds(atoms: xr.DataArray) -> xr.DataArray:
    flat = atoms.stack(kind=("model", "estimate"))
    titles = [f"{model}: {estimate}" for model, estimate in flat.kind.values]
    return flat.drop_vars(["kind", "model", "estimate"]).assign_coords(kind=titles).transpose("kind", ...).astype(float)


def cost_table(found: xr.Dataset) -> pd.DataFrame:
    """Cost of a sweep by part: milliseconds per image on one core, millions of multiply-adds, their rate."""
    tables = {}
    for shape in found["shape"].values:
        one = found.sel(shape=shape)
        milli, adds = (one[name].to_series().dropna() for name in ("ms_per_image", "multiply_adds"))
        milli["whole sweep"], adds["whole sweep"] = milli.sum(), adds.sum()
        columns = {"ms per image": milli, "million multiply-adds": adds, "billions a second": adds / milli}
        tables[f"{shape}, {float(one.active):.1f} active"] = pd.DataFrame(columns)
    return pd.concat(tables, axis=1).round(2)


def switches_line(found: xr.Dataset) -> str:
    """How often the scan switches a top coefficient, and, in older records, a joint move tried beside it."""
    lines = []
    for shape in found["shape"].values:
        one = found.sel(shape=shape)
        rate = float(one.scan_switches_per_second)
        line = f"{shape}: the scan of the top coefficients switches {rate:.0f} a second on one core"
        if "joint_tried" in one:
            line += f"; the joint move {float(one.joint_switches_per_second):.1f} "
            line += f"({int(one.joint_made)} of {int(one.joint_tried)} attempts)"
        lines.append(line)
    return "\n".join(lines)


def _with_error(values: Sequence[float], digits: int) -> str:
    """Mean and standard error as words; one value has no error."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} \u00b1 {np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"


def _draw_from(panel: Axes, start: int, values, colour: str, style: str, label: str, width: float = 1.4) -> None:
    panel.plot(start + np.arange(1, len(values) + 1), values, style, color=colour, label=label, linewidth=width)


def _logarithmic(panel: Axes) -> None:
    """Vertical axis in steps of 1, 2 and 5, written out."""
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())


def _without_start(panel: Axes) -> tuple[float, float]:
    """Limits that show nine tenths of what the lines hold: the first sweeps would flatten the rest."""
    values = np.concatenate([line.get_ydata() for line in panel.lines if len(line.get_ydata()) > 2])
    low, high = np.nanquantile(values, 0.1), np.nanmax(values)
    room = 0.15 * (high - low)
    return low - room, high + room
