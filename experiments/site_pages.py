"""Pages of the documentation that are generated from the registry and the records, as a hook of MkDocs (`mkdocs build --strict`).

A page for each task and each method, tables of both, the notebook, and worked examples are written when the site is built, so
they are never older than the code.  `python experiments/site_pages.py FOLDER` writes the same pages to a folder, without MkDocs.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import method_tables

import compbench
from compbench.api.interfaces import Score, Task
from compbench.api.schemas import Profile, Record, RunSpec
from compbench.cli.info import of_method, task_facts, usable_tasks
from compbench.cli.new import render
from compbench.registry.declared import by_family
from compbench.registry.registry import Entry, LoadResult, Registry, docstring
from compbench.system.devices import WAITS
from compbench.system.errors import CompbenchError

ROOT = Path(__file__).parents[1]
BOARD = ROOT / "leaderboards" / "site" / "board.csv"
TASKS = ROOT / "leaderboards" / "site" / "tasks.csv"
RECORDS = ROOT / "leaderboards" / "records"
MOST_ROWS = 12
"""Largest number of a board's best rows that a page shows."""
WIDEST = 40
"""Largest number of cells along a side of a lattice that a page draws."""
REAL_COLUMNS = 8
"""Number of training samples in each of the two rows that a page shows."""

NO_PAPER = "The method comes from no paper, so there is no figure to reproduce."
"""What a page says of figures if its method is compbench's own."""

Row = Mapping[str, str]


def pages() -> Iterator[tuple[str, str]]:
    """(path below docs, Markdown) of every generated page."""
    registry, rows = Registry(), board()
    for entry in usable(registry, "tasks"):
        yield f"tasks/{entry.name}.md", task_page(registry.load("tasks", entry.name), entry, rows)
    for entry in usable(registry, "methods"):
        yield f"methods/{entry.name}.md", method_page(entry, rows)


def fill(text: str) -> str:
    """A page of docs/ with its placeholders filled in: `<!-- tasks -->`, `<!-- methods -->` and so on."""
    parts = {"tasks": tasks_table, "methods": methods_table, "notebook": notebook, "examples": examples, "record": record_tables}
    return re.sub(rf"<!-- ({'|'.join(parts)}) -->", lambda found: parts[found[1]](), text)


def usable(registry: Registry, kind: Any) -> list[Entry]:
    """Entries of our own distributions that can be loaded."""
    own = [entry for entry in registry.entries(kind) if entry.distribution in ("compbench", "compbench-methods")]
    return [entry for entry in own if registry.attempt(entry).state == "ok"]


def board() -> list[dict[str, str]]:
    """The published board's rows of primary scores at the tasks' default settings, from runs, references and papers."""
    with BOARD.open() as file:
        return [row for row in csv.DictReader(file) if row["primary"] and not row["changed"]]


# -- tasks


def tasks_table() -> str:
    return "\n\n".join(
        "\n".join(
            [f"## {name.capitalize()}", "", "| task | what it asks |", "| --- | --- |"]
            + [f"| [{entry.name}](tasks/{entry.name}.md) | {cell(entry.summary)} |" for entry in own]
        )
        for name, own in by_family(usable(Registry(), "tasks")).items()
    )


def task_page(task: Task, entry: Entry, rows: Sequence[Row]) -> str:
    """The page of a task: its question, lattice, protocol, range of scores, and best rows."""
    facts = task_facts(task, entry)
    listed = {name: value for name, value in facts.items() if name not in ("task", "summary", "budgets") and "note" not in name}
    chosen = [line for name, line in facts.items() if name.startswith("--preset paper")]
    own = [row for row in rows if row["task"] == task.name]
    parts = [
        f"# {task.name}",
        entry.summary[:1].upper() + entry.summary[1:] + ".",
        f"    compbench run --method {best_method(own)} --task {task.name}",
        lattice(task),
        "## What it asks",
        table(("", ""), [(name, say(value)) for name, value in listed.items() if not name.startswith("--")]),
        picture(task),
        "## What its scores can be",
        limits(task.name),
        "## Best rows",
        best_rows(own),
        "## Budgets",
        table(("", *task.budgets), budget_rows(task)),
        "## The paper's protocol, and what we chose" if chosen else "",
        "\n".join(f"- {line}" for line in chosen),
        "## Notes" if task.notes else "",
        "\n".join(f"- {note}" for note in task.notes),
        "## Settings" if type(task.settings).model_fields else "",
        table(("setting", "default and meaning"), [(f"`{n}`", say(v)) for n, v in facts.items() if n.startswith("--set")]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def lattice(task: Task) -> str:
    """The lattice of the holdout's two factors: a full square is seen, an empty one held out."""
    pattern = task.holdout.pattern_space
    if len(task.holdout.factors) != 2 or max(pattern.sizes) > WIDEST:
        return ""
    (rows, columns), held, side = pattern.sizes, set(task.holdout.cells), max(6, min(24, 480 // max(pattern.sizes)))
    names = [[escape(value) for value in factor.values or map(str, range(factor.size))] for factor in pattern.factors]
    cells = [
        f'<rect x="{column * side + 1}" y="{row * side + 1}" width="{side - 2}" height="{side - 2}" stroke="currentColor" '
        f'fill="{"none" if (row, column) in held else "currentColor"}"><title>{names[0][row]}, {names[1][column]}: '
        f"{'held out' if (row, column) in held else 'seen'}</title></rect>"
        for row, column in itertools.product(range(rows), range(columns))
    ]
    box = f'width="{columns * side}" height="{rows * side}" style="max-width: 100%" role="img" aria-label="the lattice"'
    caption = f"Rows are <em>{escape(pattern.names[0])}</em>, columns <em>{escape(pattern.names[1])}</em>: "
    drawn = f'<svg viewBox="0 0 {columns * side} {rows * side}" {box}>{"".join(cells)}</svg>'
    return f"<figure>{drawn}<figcaption>{caption}full squares are seen, empty ones held out.</figcaption></figure>"


@lru_cache
def real_of(name: str) -> bytes:
    """The samples of an installed task, drawn once."""
    return real_samples(Registry().load("tasks", name))


def real_samples(task: Task) -> bytes:
    """A PNG of training samples of an image task; b"" if samples are not images, or if the data is not on this machine."""
    if task.event.kind != "image":
        return b""
    import torch
    from PIL import Image

    try:
        silo = compbench.task(task.name, preset="smoke").problem.federation.unmetered().pooled()
    except CompbenchError:  # for example, this machine lacks a font
        return b""
    images = silo.batch(2 * REAL_COLUMNS, torch.Generator().manual_seed(0)).x1
    pixels = ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).expand(-1, 3, -1, -1)  # (16, 3, H, W)
    rows = [torch.cat(list(part), dim=2) for part in pixels.split(REAL_COLUMNS)]
    grid = torch.cat(rows, dim=1).permute(1, 2, 0)
    picture = Image.fromarray(grid.numpy())
    scale = max(1, 64 // task.event.shape[-1])
    file = io.BytesIO()
    picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST).save(file, "PNG")
    return file.getvalue()


def limits(name: str) -> str:
    """The scores of the best constant answer and of real data on each board, from the published tables."""
    with TASKS.open() as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == name and not row["changed"]]
    found = [
        ("; ".join([row["preset"], *method_tables.older("", 0, name, int(row["task_version"]))]),
         row["primary"], row.get("zero") or "?", row["real"] or "?")
        for row in rows
    ]  # fmt: skip
    text = "*Zero* is the best answer that ignores the request; *real* is real data in the place of samples."
    return text + "\n\n" + table(("preset", "score", "zero", "real"), found) if found else "No published records yet."


def best_method(rows: Sequence[Row]) -> str:
    runs = [row for row in rows if row["kind"] == "run" and row["mean"]]
    sign = -1 if runs and runs[0]["direction"] == "higher" else 1
    return min(runs, key=lambda row: sign * float(row["mean"]))["method"] if runs else "mono"


def best_rows(rows: Sequence[Row]) -> str:
    """The best published rows of each preset."""
    ran = [row for row in rows if row["kind"] in ("run", "reference") and row["mean"]]
    if not ran:
        return "No published records yet."
    parts = []
    for (preset, source), group in itertools.groupby(sorted(ran, key=board_key), key=board_key):
        own = list(group)
        own.sort(key=lambda row: float(row["mean"]) * (-1 if row["direction"] == "higher" else 1))
        lines = [
            (f"[{row['method']}](../methods/{row['method']}.md)" + (" (reference)" if row["kind"] == "reference" else ""),
             settings_of(row), row["mean"], row["std"] or "-", row["num_seeds"])
            for row in own[:MOST_ROWS]
            if row["method"] in methods()
        ]  # fmt: skip
        head = f"`{preset}`, {source} data, {own[0]['score']} ({own[0]['direction']} is better)"
        parts.append(head + "\n\n" + table(("method", "settings, versions", "mean", "std", "seeds"), lines))
    return "\n\n".join(parts)


def board_key(row: Row) -> tuple[str, str]:
    return row["preset"], row["source"]


@lru_cache
def tasks() -> tuple[LoadResult, ...]:
    """All tasks, loaded once."""
    return tuple(usable_tasks(Registry()))


@lru_cache
def methods() -> frozenset[str]:
    """Names of the installed methods, looked up once."""
    return frozenset(Registry().names("methods"))


def budget_rows(task: Task) -> list[tuple[str, ...]]:
    fields = type(next(iter(task.budgets.values()))).model_fields
    return [(name, *(say(getattr(budget, name)) for budget in task.budgets.values())) for name in fields]


def picture(task: Task) -> str:
    """Real samples above generated ones, from a published record; for a task without records, only real samples."""
    shown = task.name if sample_grid(task.name) else same_data(task)
    if found := sample_grid(shown):
        whose = "" if shown == task.name else f", on [{shown}]({shown}.md), which has the same data"
        return f"![real samples above generated ones](../samples/{shown}.png)\n\n*{found.name.split('.')[1]}{whose}*"
    alone = f"![samples of the training data](../samples/{task.name}.real.png)\n\n*Samples of the training data.*"
    return alone if real_of(task.name) else ""


def same_data(task: Task) -> str:
    """A task with the same data set and a published picture; "" if there is none.  Opening a data set takes long."""
    others = (one.value for one in tasks() if one.value.files == task.files and one.value.event == task.event)
    return next((other.name for other in others if task.files and sample_grid(other.name)), "")


@lru_cache
def sample_grid(task: str) -> Path | None:
    """The sample grid of a task's last published record with a grid; real samples are in its upper rows."""
    return next(iter(sorted(RECORDS.glob(f"{task}.*samples.png"), reverse=True)), None)


# -- methods


def methods_table() -> str:
    lines = [f"| [{e.name}](methods/{e.name}.md) | {cell(e.summary)} |" for e in usable(Registry(), "methods")]
    return "\n".join(["| method | idea |", "| --- | --- |", *lines])


def method_page(entry: Entry, rows: Sequence[Row]) -> str:
    """The page of a method: idea and equation, settings, the paper's figures next to ours, and its results."""
    method = Registry().attempt(entry).value
    own = of_method(method, tasks())
    text = docstring(entry.file) if entry.file else ""
    about = [row for row in rows if row["method"] == entry.name and row["kind"] in ("run", "reference") and row["mean"]]
    settings = [(f"`{name.removeprefix('--set ')}`", cell(value)) for name, value in own.settings.items()]
    competing = [row for row in about if row["kind"] == "run"]
    standing = [standing_of(row) for row in about]
    assert entry.file is not None
    parts = [
        f"# {entry.name}",
        entry.summary[:1].upper() + entry.summary[1:],
        f"    compbench run --method {entry.name} --task {next((row['task'] for row in competing or about), 'TASK')}",
        "## Equation, paper and deviations",
        "From the method's own file, which is written to be read top to bottom: "
        f"`{entry.module.replace('.', '/')}.py`, version {own.version}.",
        "\n".join(f"    {line}".rstrip() for line in text.splitlines()),
        "## What the authors do, and what we do",
        method_tables.statement(text, "Own"),
        deviation_table(text),
        "## Its paper's figures, reproduced",
        reproduced_table(entry.name, text),
        "## What its published runs used",
        used_table(entry.name),
        "" if method.oracle else method_tables.statement(text, "Size"),
        "## Settings",
        table(("setting", "default, type, bounds, meaning"), settings) if settings else "None.",
        "## Its scores",
        table(("task", "preset", "settings, versions", "score", "mean"), standing) if standing else "No published records yet.",
        "## Runs on",
        own.runs_on,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def standing_of(row: Row) -> tuple[str, ...]:
    """Task, preset, settings and older versions of the runs, and name and mean of the score, of a method's row."""
    said = ("reference; " if row["kind"] == "reference" else "") + settings_of(row)
    return f"[{row['task']}](../tasks/{row['task']}.md)", row["preset"], said, row["score"], row["mean"]


def settings_of(row: Row) -> str:
    """The settings of a row's runs, and which versions of them are older than today's."""
    old = method_tables.older(row["method"], int(row["method_version"]), row["task"], int(row["task_version"]))
    return "; ".join([row["variant"] or "default", *old])


def deviation_table(text: str) -> str:
    """The deviations from its authors' version that a method's docstring names."""
    return table(("the authors", "here", "why"), method_tables.deviations(text))


def reproduced_table(method: str, text: str) -> str:
    """Each number that a paper prints for a method or that the method's paper plots, and what its docstring says of figures."""
    rows = method_tables.reproduced(method, text, methods())
    judged = method_tables.statement(text, "Figures")
    if not rows:
        return judged or (NO_PAPER if method_tables.statement(text, "Own") else "")
    note = (
        "Ours has our data and budgets, and the preset in brackets: see the task's page for what differs. The ceiling is what "
        "real data have by our score. If a ceiling is below a paper's value, our judge mistakes real data, and the difference to "
        "the paper does not tell how good the method is."
    )
    heads = ("where", "task", "their metric", "our score", "theirs", "ours", "ceiling of ours", "command")
    return "\n\n".join(part for part in (note, table(heads, rows), judged) if part)


def used_table(method: str) -> str:
    """Parameters, masks, guidance and steps of the published runs at the most frequent settings."""
    rows = method_tables.used(method_tables.published().get(method, ()))
    heads = ("task", "parameters", "masks", "guidance weight", "training", "sampling")
    return table(heads, rows) or "No published records yet."


# -- the record, the notebook and the examples


def record_tables() -> str:
    """The fields of a record and of its parts, one table per type."""
    heads = {"Record": Record, "record.spec": RunSpec, "record.scores": Score, "record.profile": Profile}
    return "\n\n".join(
        f"`{head}`\n\n" + table(("field", "meaning"), [(f"`{n}`", one.description or "") for n, one in kind.model_fields.items()])
        for head, kind in heads.items()
    )


def notebook() -> str:
    """notebooks/plane.ipynb as a page: its text and code."""
    cells = json.loads((ROOT / "notebooks" / "plane.ipynb").read_text())["cells"]
    texts = ["".join(one["source"]) for one in cells]
    return "\n\n".join(
        text.replace("# ", "## ", 1) if one["cell_type"] == "markdown" and text.startswith("# ") else
        text if one["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for one, text in zip(cells, texts, strict=True)
    )  # fmt: skip


def examples() -> str:
    """A complete plugin of each kind: those that `compbench new` writes, and the shipped executor."""
    shown = []
    for kind, option in (("method", ""), ("task", " --kind task"), ("metric", " --kind metric")):
        files = render("my-idea", kind)
        code = files["compbench_my_idea/my_idea.py"].decode()
        shown.append(f"## A {kind}\n\n    compbench new my-idea{option}\n\n```python\n{code}```")
    local = (ROOT / "compbench" / "sweep" / "this_machine.py").read_text()
    text = "Its entry point is in the group `compbench.executors`; this one, `local`, is compbench's own, whole."
    return "\n\n".join([*shown, f"## An executor\n\n{text}\n\n```python\n{local}```"])


# -- Markdown


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([cell(str(value)) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def say(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- MkDocs


SEARCH = "assets/iframe-worker.js"
"""The theme's plugin `offline` looks for this name among the site's scripts; without it, pages would load one from elsewhere."""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and their pictures (MkDocs calls it)."""
    from mkdocs.structure.files import File

    os.environ.setdefault(WAITS, "PASSIVE")  # before a task loads torch, whose threads would spin while they wait
    for place, text in pages():
        files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, "llms.txt", content=llms(config["nav"])))
    files.append(File.generated(config, SEARCH, abs_src_path=str(Path(__file__).with_name("site_search.js"))))
    registry = Registry()
    for entry in usable(registry, "tasks"):
        if found := sample_grid(entry.name):
            files.append(File.generated(config, f"samples/{entry.name}.png", abs_src_path=str(found)))
        elif not same_data(registry.load("tasks", entry.name)) and (real := real_of(entry.name)):
            files.append(File.generated(config, f"samples/{entry.name}.real.png", content=real))
    for name in linked_grids():
        files.append(File.generated(config, f"samples/{name}", abs_src_path=str(RECORDS / name)))
    return files


OUTSIDE = "](../../leaderboards/records/"
"""Start of a link from a page of docs/results/ to a record's sample grid, which is outside of docs."""


def linked_grids() -> list[str]:
    """Names of the sample grids to which the pages of docs/results/ link."""
    texts = "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs" / "results").glob("*.md")))
    return sorted(set(re.findall(re.escape(OUTSIDE) + r"([^)]+)\)", texts)))


def llms(nav: Sequence[Any]) -> str:
    """The site on one page for language models: what compbench is, and each page with its first sentence (llmstxt.org)."""

    def places(entries: Sequence[Any]) -> Iterator[str]:
        for entry in entries:
            for one in entry.values() if isinstance(entry, dict) else (entry,):
                yield from (one,) if isinstance(one, str) else places(one)

    lines = ["# compbench", "", "> Methods for compositional generation, compared under one protocol.", "", "## Pages", ""]
    for place in places(nav):
        title, _, text = (ROOT / "docs" / place).read_text().removeprefix("# ").partition("\n")
        first = next((part for part in text.split("\n\n") if part.strip() and part.lstrip()[0] not in "<!#|-"), "")
        sentence = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(first.split())).split(". ")[0].rstrip(".")
        lines.append(f"- [{title}]({place.replace('.md', '.html')}): {sentence}.")
    entries = [entry for kind in ("tasks", "methods") for entry in usable(Registry(), kind)]
    lines += ["", "## Tasks and methods", ""]
    lines += [f"- [{one.name}]({one.kind}/{one.name}.html): {' '.join(one.summary.split())}" for one in entries]
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the tables, and link to the site's own copy of a sample grid (MkDocs calls it)."""
    return fill(markdown).replace(OUTSIDE, "](../samples/")


if __name__ == "__main__":
    os.environ.setdefault(WAITS, "PASSIVE")
    folder = Path(sys.argv[1])
    for place, text in pages():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
