"""Write docs/results.md and docs/results/: sentences, figures and tables from the published records; no number is typed by hand.

    python experiments/results_pages.py            writes the files from leaderboards/records
    python experiments/results_pages.py --check    writes nothing, and fails if a file differs from what the records give

`docs/results.md` has about ten sentences (`results_sentences.py`) and six figures (`results_svg.py`).  `docs/results/` has the
figures, a page per family of tasks, and the runs on two devices.  A file in that folder that this command does not write is an
error.  Single investigations, which are not rewritten, are in `docs/investigations/`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from claims import ROOT, counted, examine, rows, shares_of_examples, table, verdicts
from results_sentences import DIGITS, ORACLE, PLANS, POINTS, SHAPES, SLICED, SPRITES, Known, leader, puzzle, sentences
from results_svg import BEST, COLOURS, LEAST, MEANS, WORSE, Dot, Map, Scatter, forest, maps, scatters
from results_tables import of_tables, on_two_devices, tables, twins, written
from results_unasked import PAGE as ASIDES
from results_unasked import unasked

from compbench.api.schemas import Record
from compbench.board import site
from compbench.board.build import answers, opened_on
from compbench.board.catalogue import Catalogue, TaskFacts
from compbench.board.notation import share_words
from compbench.board.question_table import LABELS
from compbench.board.row import BoardRow
from compbench.board.view import SAMPLES, STATE_WORDS, Answer, Entry, View
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError

PAGE, FOLDER = "results.md", "results"
PRESET = "standard"
COMMAND = "python experiments/results_pages.py"
HEAD = f"<!-- `{COMMAND}` writes this file from leaderboards/records: do not edit it. -->"
READ = (
    "A dot is a seed of a competing method: filled if the method *may be best*, hollow if it is shown to be worse. Bars are "
    f"intervals of means. Shares below {LEAST:g} are drawn there. Solid line: the best answer that ignores the request; dashed "
    "line: real data."
)
MAPS_READ = (
    "The darker a cell, the more of its samples are right; held-out cells have a frame. Methods are in the order of the table."
)
SIDE_READ = (
    "A cell has a mean over seeds, or a value for each seed. Methods that did not run on all of these tasks are left out, and "
    "methods that do not compete are not."
)
SIDE_MORE = {
    "images": "If a heading names several scores, a cell has them in this order; *seen* is the share of seen pairs drawn right. "
    "*FD* is the Frechet distance in a judge's features over all held-out combinations, so it says nothing about "
    "composition; divided by that of real data in the same run, it can be compared under any judge. A dash marks a method of "
    "which a run lacks it.",
    "drawings": "*FD* is the Frechet distance in EfficientNet-Lite0's features and *FWD* the Frechet wavelet distance, each "
    "divided by that of real data. Neither needs a judge, so they compare across machines; they say nothing about composition.",
    "planning": "Values are percentages of plans that reach the goal. A *first plan* is executed from its own start, without a "
    "second plan.",
}
CLAIMS_READ = (
    "*found* has the means of both over the seeds that both have, *gain* is positive if A is better, in the score's unit, and "
    "*p* is uncorrected."
)
MOST_MAPS, MOST_CELLS = 4, 100
"""Number of maps on the front page, and largest number of cells of a lattice that is drawn for every method."""

Axes = Mapping[str, Sequence[str]]
"""The names of the two factors of each task's lattice."""


class Published(NamedTuple):
    """Facts from a folder of records: sources of the sentences, facts about tasks, the records of the tables, and all records."""

    folder: Path
    known: Known
    catalogue: Catalogue
    own: Sequence[Record]
    everything: Sequence[Record]


def files(published: Published) -> dict[str, str]:
    """The text of each file, by its path below docs."""
    records, known, catalogue, own, everything = published
    families = list(dict.fromkeys(question.family for question in known.view.questions if question.family))
    texts = {f"{FOLDER}/{name}": drawn for name, drawn in figures(known, catalogue).items()}
    texts |= {f"{FOLDER}/{family}.svg": forest(panels(known.view, family)) for family in families}
    entries = [entry.row for _, answer in known.view.answers() for entry in answer.entries]
    versions = {row.method: row.newer_version for row in entries if row.newer_version}
    side = {
        family: [written(t, own, versions) for name, t in tables().items() if name.split()[0] == family] for family in families
    }
    cells = {answer.section.task: found for _, answer in known.view.answers() if (found := cell_maps(answer, catalogue))}
    texts |= {f"{FOLDER}/{task}.svg": maps(found) for task, found in cells.items()}
    axes = {task: [name for name, _ in catalogue[task].factors] for task in cells}
    texts |= {f"{FOLDER}/{family}.md": family_page(known, family, side[family], axes, records) for family in families}
    about = "Each row has the scores of one spec that ran on a CPU and, with another version of torch, on a GPU."
    devices = f"# Runs on two devices\n\n{HEAD}\n\n{about}\n\n"
    texts[f"{FOLDER}/processors.md"] = f"{devices}{on_two_devices(own)}\n"
    asides = unasked(known.board.rows, everything, HEAD, known.board.verdicts)
    texts |= {f"{FOLDER}/{name}": text for name, text in asides.items()}
    texts[PAGE] = front_page(known, families, asides)
    return texts


def read(records: Path) -> Published:
    """Read a folder of records, once.

    Raises:
        CompbenchError: no record is of a task under its own protocol.
    """
    material, _ = site.read(records, ROOT / "leaderboards" / "site", link=True)
    board, contests, made = answers(material)
    view = opened_on(contests, made)
    if view is None:
        raise CompbenchError(f"no record in {records} is of a core task under its own protocol; `compbench sweep` makes some.")
    versions = {name: facts.version for name, facts in [*material.methods.items(), *material.catalogue.items()]}
    found = examine(material.records, PRESET, versions)
    own = of_tables(material.records)
    known = Known(board, view, list(zip(found, verdicts(found), strict=True)), twins(own))
    return Published(records, known, material.catalogue, own, material.records)


# -- the front page


def front_page(known: Known, families: Sequence[str], asides: Collection[str]) -> str:
    said = [f"{place}. {words} {links(files)}" for place, (words, files) in enumerate(sentences(known), 1)]
    shown = [
        ("images.svg", "Images, a panel for each task", READ),
        (
            "seen.svg",
            "What is learnt and what is composed",
            "Each dot is a trained method on a task: its share attained on seen and on unseen combinations.",
        ),
        (
            "recall.svg",
            "Accuracy against recall",
            "A request of these tasks has several pictures: a method with less than half of real data's recall draws means.",
        ),
        (
            "lattice.svg",
            "Which combinations fail",
            "Shapes by hues, on the hardest split of Shapes3D: framed cells are held out, and dark ones have many right samples.",
        ),
        (
            "exact.svg",
            "Exact against learnt scores on the plane",
            "Each dot is a method on a target, on logarithmic axes. Hollow dots are targets far from the sources.",
        ),
        (
            "silos.cost.svg",
            "What a score costs where data stay in silos",
            "Upper plots: what a silo sends; lower ones: the cost of training and samples.",
        ),
    ]
    drawn = [f"## {title}\n\n![{Path(name).stem}]({FOLDER}/{name})\n\n{about}" for name, title, about in shown]
    pages = ", ".join(f"[{family}]({FOLDER}/{family}.md)" for family in families)
    beyond = f"; beyond them: [sealed holdouts, shots, tuning and structure]({FOLDER}/{ASIDES})" if asides else ""
    entries = [entry for _, answer in known.view.answers() for entry in answer.entries]
    older = sum(entry.row.newer_version > 0 for entry in entries)
    versions = f"{older} of {len(entries)} rows have an older version of their method; the tables say which. " if older else ""
    about = (
        f"This page has the findings of the published runs at `{known.view.preset}`. A method *may be best* unless another one "
        f"is shown to be better. {versions}Tables, seeds and samples of each family: {pages}{beyond}. "
        "[How to read a board](boards.md) explains the terms, and [investigations](investigations/index.md) "
        "answer single questions."
    )
    return "\n\n".join(["# Results", HEAD, about, "\n".join(said), *drawn]) + "\n"


def links(names: Sequence[str]) -> str:
    """Links such as ([images](results/images.md), [silos](results/silos.md))."""
    return f"({', '.join(f'[{Path(name).stem}]({FOLDER}/{name})' for name in names)})"


# -- a family's page


def panels(view: View, family: str) -> list[tuple[str, Answer]]:
    """(title, answer) of each task of a family."""
    return [(heading(answer), answer) for question, answer in view.answers() if question.family == family]


def heading(answer: Answer) -> str:
    return f"{answer.section.task}: {answer.verdict}" if answer.verdict else answer.section.task


def family_page(known: Known, family: str, side: Sequence[str], axes: Axes, records: Path) -> str:
    own = [(question, answer) for question, answer in known.view.answers() if question.family == family]
    tasks = {answer.section.task for _, answer in own}
    distances = sorted({answer.unit[1] for _, answer in own if "↓" in answer.unit[0]})
    units = " ".join(f"A distance is the {what}." for what in distances)
    if any(entry.row.method.endswith(ORACLE) for _, answer in own for entry in answer.entries):
        units = f"{units} Costs of methods with exact scores leave out the formulas of these scores.".strip()
    parts = [
        f"# Results: {family}",
        HEAD,
        f"The runs are at `{known.view.preset}`. A cost is that of the training and of {SAMPLES:,} samples. *Share attained* is "
        "the share of the way from the best answer that ignores the request to real data. *Seen* puts the score on seen "
        "combinations on the same scale, so it may exceed the whole way. *Recall* is a share of real data's recall. "
        f"[Marks](../boards.md#marks) explains states and failed fits. {units}".strip(),
    ]
    parts += ["## First places", first_places([answer for _, answer in own]), f"![forest plot]({family}.svg)", READ]
    parts += list(of_papers(known, tasks))
    if side:
        parts += ["## Side by side", f"{SIDE_READ} {SIDE_MORE.get(family, '')}".strip(), *side]
    for question, answer in own:
        task = answer.section.task
        here = f" Here: {LABELS[answer.label]}." if answer.label in LABELS else ""
        about = " ".join(filter(None, (f"{question.asked.about}{here}", puzzle(answer), answer.older)))
        parts += [f"## {task}", about, of_task(answer, records)]
        if task in axes:
            parts.append(
                f"![which combinations fail]({task}.svg)\n\nRows are {axes[task][0]}, columns {axes[task][1]}. {MAPS_READ}"
            )
    return "\n\n".join(part for part in parts if part) + "\n"


def first_places(found: Sequence[Answer]) -> str:
    lines = [("task", "verdict", "may be best", "best score", "real data", "cheapest of them")]
    for answer in found:
        names = ", ".join(f"`{entry.row.method}`" for entry in answer.best)
        cheap = f"`{answer.cheapest.row.method}`, {answer.cheapest.cost_words}" if answer.cheapest else "?"
        best = max(answer.best, key=lambda entry: entry.share or 0.0).score if answer.best else "-"
        task = f"[{answer.section.task}](#{answer.section.task})"
        lines.append((task, answer.verdict or "-", names or "-", best, answer.real or "?", cheap))
    return rows(lines)


def of_task(answer: Answer, records: Path) -> str:
    """Each method's score, seeds and cost, and a link to its samples; its version where records have a newer one."""
    entries = answer.entries
    values: dict[str, list[str]] = {"": [in_version(entry.row) for entry in entries]}
    values["state"] = [STATE_WORDS[entry.state] for entry in entries]
    values["score"] = [entry.score for entry in entries]
    values["seeds"] = [
        ", ".join(f"{value:.3g}" for _, value in entry.row.fits.values) if entry.row.fits else "-" for entry in entries
    ]
    values["share attained"] = ["-" if entry.share is None else share_words(entry.share) for entry in entries]
    values["seen"] = ["-" if entry.seen is None else share_words(entry.seen) for entry in entries]
    values["recall"] = ["-" if entry.row.recall is None else f"{entry.row.recall:.2f}" for entry in entries]
    values["cost"] = [entry.cost_words for entry in entries]
    values["failed fits"] = [entry.row.fits.words if entry.row.fits and entry.row.fits.words else "-" for entry in entries]
    values["samples"] = [samples(entry, records) for entry in entries]
    kept = {name: column for name, column in values.items() if set(column) != {"-"}}
    return rows([tuple(kept), *zip(*kept.values(), strict=True)])


def in_version(row: BoardRow) -> str:
    """A method, with the settings that distinguish references of it, and its version if there is a newer one."""
    known = [row.variant if row.kind == "reference" else "", f"version {row.method_version}, now {row.newer_version}"]
    told = "; ".join(word for word in known[: 1 + bool(row.newer_version)] if word)
    return f"`{row.method}`" + (f" ({told})" if told else "")


def samples(entry: Entry, records: Path) -> str:
    """A link to the first sample grid of a row."""
    name = next((name for name in entry.row.records if (records / f"{name}.samples.png").is_file()), "")
    return f"[grid](../../leaderboards/records/{name}.samples.png)" if name else "-"


def of_papers(known: Known, tasks: set[str]) -> Iterator[str]:
    """The papers' claims about these tasks, with p values corrected over each whole paper."""
    for paper in dict.fromkeys(found.claim.paper for found, _ in known.claims):
        own = [(found, said) for found, said in known.claims if found.claim.paper == paper and found.claim.task in tasks]
        if own:
            claims, said = zip(*own, strict=True)
            shares = shares_of_examples(claims, Registry())
            yield f"## Claims of {paper}"
            yield (
                f"{counted(said).capitalize()}; *open* is not significant after Holm's correction over the paper's claims, "
                f"run or not. *A > B* claims that A is better than B. {CLAIMS_READ}{' ' if shares else ''}{shares}"
            )
            yield table(claims, said)


# -- figures


def figures(known: Known, catalogue: Catalogue) -> dict[str, str]:
    """The front page's figures except the forest plot, by name."""
    return {
        "seen.svg": learnt_and_composed(known.view),
        "recall.svg": accuracy_and_recall(known),
        "lattice.svg": lattices(known, catalogue),
        "exact.svg": exact_and_learnt(known),
        "silos.cost.svg": costs(known),
    }


def learnt_and_composed(view: View) -> str:
    families = dict.fromkeys(
        q.family for q, answer in view.answers() if any(entry.seen is not None for entry in answer.competing)
    )
    colours = dict(zip(families, COLOURS, strict=False))
    dots = [
        Dot(entry.seen, max(entry.share, 0.0), f"{entry.row.method}, {answer.section.task}", colours[question.family])
        for question, answer in view.answers()
        for entry in answer.competing
        if entry.seen is not None and entry.seen >= 0 and entry.share is not None and not entry.row.learns_nothing
    ]
    plot = Scatter("every trained method and task", "share attained, seen", "share attained, unseen", tuple(dots), diagonal=True)
    return scatters([plot], 1, list(colours.items()))


def accuracy_and_recall(known: Known) -> str:
    plots = []
    for task in (SPRITES, DIGITS):
        answer = known.answer(task)
        entries = [entry for entry in answer.entries if entry.row.recall is not None and entry.cell] if answer else []
        named = [entry.row.method for entry in entries if entry.state == "best" or entry.row.draws_means]
        dots = [
            Dot(
                entry.row.recall or 0.0,
                entry.cell.mean / entry.cell.whole if entry.cell else 0.0,
                entry.row.method,
                MEANS if entry.row.draws_means else BEST if entry.state == "best" else WORSE,
                entry.state != "reference",
                entry.row.method in named,
            )
            for entry in entries
        ]
        plots.append(Scatter(task, "recall, of real data's", "right, unseen", tuple(dots)))
    return scatters(plots, 2, [("draws means", MEANS), ("may be best", BEST), ("other (hollow: reference)", WORSE)])


def lattices(known: Known, catalogue: Catalogue) -> str:
    """Maps of the hardest Shapes3D task: the best method, the cheapest that may be best, the best around NULL, and the last."""
    task = [*SHAPES.values()][-1]
    answer = known.answer(task)
    assert answer is not None
    chosen = [*answer.best[:1], answer.cheapest, leader(answer, SLICED), answer.competing[-1]]
    entries = {entry.row.method: entry for entry in chosen if entry is not None}
    for entry in answer.best:
        if len(entries) < MOST_MAPS:
            entries.setdefault(entry.row.method, entry)
    return maps(maps_of([*entries.values()], catalogue[task]))


def cell_maps(answer: Answer, catalogue: Catalogue) -> list[Map]:
    """A map for each competing method of a task whose lattice has two factors and few cells."""
    facts = catalogue.get(answer.section.task)
    if facts is None or len(facts.factors) != 2 or math.prod(size for _, size in facts.factors) > MOST_CELLS:
        return []
    return maps_of(answer.competing, facts)


def maps_of(entries: Sequence[Entry], facts: TaskFacts) -> list[Map]:
    """A map for each of a task's entries that has counts by cell."""
    (_, rows), (_, columns) = facts.factors
    found = ((entry.row.method, parts_right(entry)) for entry in entries)
    return [Map(method, (rows, columns), parts, frozenset(facts.cells)) for method, parts in found if parts]


def parts_right(entry: Entry) -> Mapping[tuple[int, ...], float]:
    cells = [entry.cell, entry.row.seen]
    return {one.cell: one.right / one.n for cell in cells if cell for one in cell.by_cell if one.n}


def exact_and_learnt(known: Known) -> str:
    tasks = {answer.section: answer for question, answer in known.view.answers() if question.family == "plane"}
    own = [row for row in known.board.rows if row.section in tasks and row.parts and row.kind == "run"]
    colours = dict(zip(dict.fromkeys(sorted(row.method for row in own)), COLOURS, strict=False))
    dots = [
        Dot(
            row.parts.inference,
            row.parts.total,
            f"{row.method}, {row.section.task}",
            colours[row.method],
            row.section.task.endswith("-id"),
        )
        for row in own
        if row.parts
    ]
    plot = Scatter("distance to the target", "exact scores", "learnt scores", tuple(dots), (True, True), diagonal=True)
    return scatters([plot], 1, list(colours.items()))


def costs(known: Known) -> str:
    """Share attained against what a silo sends, and against the cost of training and samples."""
    found = known.answers((DIGITS, POINTS, PLANS))
    plots = []
    for axis in ("MB that a silo sends", "TFLOP, training and samples"):
        for task, answer in found.items():
            places = [(entry, sent(entry) if "MB" in axis else (entry.cost or 0.0) / 1e12) for entry in answer.entries]
            dots = [
                Dot(x, max(entry.share, 0.0), entry.row.method, colour_of(entry), entry.state == "best", True)
                for entry, x in places
                if entry.share is not None and entry.state != "reference"
            ]
            plots.append(Scatter(task, axis, "share attained", tuple(dots), (True, False)))
    return scatters(plots, len(found) or 1, [("may be best", BEST), ("shown to be worse", WORSE), ("draws means", MEANS)])


def colour_of(entry: Entry) -> str:
    return {"best": BEST, "means": MEANS}.get(entry.state, WORSE)


def sent(entry: Entry) -> float:
    timing = entry.row.timing
    return timing.silos.bytes_out / 1e6 if timing and timing.silos else 0.0


# -- the command


def stale(texts: Mapping[str, str], docs: Path) -> list[str]:
    """Paths below docs of files that differ from what the command writes, or that it does not write."""
    extra = [path.relative_to(docs).as_posix() for path in sorted((docs / FOLDER).rglob("*")) if path.is_file()]
    old = [name for name, text in texts.items() if not (docs / name).is_file() or (docs / name).read_text("utf-8") != text]
    return [*old, *(name for name in extra if name not in texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=ROOT / "leaderboards" / "records")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--check", action="store_true", help="do not write; fail if a file is stale")
    asked = parser.parse_args()
    texts = files(read(asked.records))
    old = stale(texts, asked.docs)
    if asked.check:
        if old:
            sys.exit(f"not what the records give: {', '.join(old)}; run {COMMAND}")
        return
    for name in old:
        path = asked.docs / name
        if name in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[name], "utf-8")
        else:
            path.unlink()
        print(path)


if __name__ == "__main__":
    main()
