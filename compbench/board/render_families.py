"""Write the matrix of methods by families as CSV and Markdown, and how well each task separates methods as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from compbench.board.competition import scale_of_rows
from compbench.board.families import Contest, Standing
from compbench.board.notation import by_section, open_ranks, standing_words
from compbench.board.render_csv import exact
from compbench.board.render_markdown import escape, line
from compbench.board.row import Board
from compbench.store.format import text
from compbench.system.files import Json

FAMILIES = ("preset", "family", "method", "distribution", "state", "rank", "rank_best", "rank_worst", "group",
            "share_attained", "low", "high", "may_be_best", "mean_rank", "num_seeds", "num_tasks", "of_tasks",
            "first_by_share", "first_by_rank", "depends_on_rule", "left_out")  # fmt: skip
TASKS = ("task", "task_version", "preset", "source", "fingerprint", "changed", "discriminability", "low", "high", "num_methods",
         "num_seeds", "ranks", "primary", "zero", "real", "log", "verdict", "learnt", "may_be_best")  # fmt: skip

PREAMBLE = """Each number is the mean *share attained* over a family's tasks: 0 is the score of the best answer that ignores the
request, 1 that of real data (distances by their logarithm); then its interval, and the ranks that the comparisons
leave open. Bold is what may be best: no other method is significantly better. A method is ranked over a family only
if it ran all of its tasks at default settings, with two seeds or more; a failed run counts as the worst run of its
task, at most 0, and a cell without runs is blank.
"""


def families_csv(contests: Sequence[Contest]) -> str:
    """One line per method and family, if the method ran a task of the family."""
    lines = []
    for contest in contests:
        for family in contest.families:
            for method, distribution in contest.methods:
                found = family.standings.get((method, distribution))
                if found is not None:
                    head: dict[str, Json] = {"preset": contest.preset, "family": family.name}
                    head |= {"method": text(method), "distribution": text(distribution), "of_tasks": len(family.sections)}
                    head |= {
                        "first_by_share": text("; ".join(family.first_by_share)),
                        "first_by_rank": text("; ".join(family.first_by_rank)),
                        "depends_on_rule": "yes" if family.depends_on_rule else "no",
                    }
                    lines.append(head | _standing(found))
    return _csv(FAMILIES, lines)


def _standing(found: Standing) -> dict[str, Json]:
    rank = dict(zip(("rank", "rank_best", "rank_worst", "group"), found.rank, strict=True)) if found.rank else {}
    low, high = found.interval or (None, None)
    return rank | {
        "state": found.state,
        "share_attained": exact(found.mean),
        "low": exact(low),
        "high": exact(high),
        "may_be_best": "" if found.rank is None else "yes" if found.best else "no",
        "mean_rank": exact(found.mean_rank),
        "num_seeds": len(found.shares),
        "num_tasks": found.num_tasks,
        "left_out": text("; ".join(found.left_out)),
    }


def tasks_csv(board: Board) -> str:
    """One line for each section: whether it ranks, and the scale of its shares."""
    lines = []
    for section, rows in by_section(board.rows).items():
        discriminability, scale = board.discriminability.get(section), scale_of_rows(rows)
        known: dict[str, Json] = {"changed": text(", ".join(section.changed)), "primary": rows[0].primary}
        if discriminability is not None:
            known |= dict(zip(("discriminability", "low", "high"), map(exact, discriminability[:3]), strict=True))
            known |= {
                "num_methods": discriminability.num_methods,
                "num_seeds": discriminability.num_seeds,
                "ranks": "yes" if discriminability.ranks and section not in board.missing else "no",
            }
        if scale is not None:
            known |= {"zero": exact(scale.zero), "real": exact(scale.real), "log": "yes" if scale.log else ""}
        verdict = board.verdicts.get(section)
        if verdict is not None:
            best = text("; ".join(verdict.best))
            known |= {"verdict": verdict.word, "learnt": exact(verdict.learnt), "may_be_best": best}
        where = dict(zip(TASKS, section[:5], strict=False))
        lines.append({**where, "fingerprint": text(section.fingerprint), **known})
    return _csv(TASKS, lines)


def _csv(header: Sequence[str], lines: Sequence[Mapping[str, Json]]) -> str:
    output = io.StringIO()
    writer = csv.DictWriter(output, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return output.getvalue()


def families_markdown(contests: Sequence[Contest]) -> str:
    """One table for each contest, with a row per method and a column per family; "" without a contest."""
    parts = []
    for contest in contests:
        families = [family for family in contest.families if family.sections]
        if not families:
            continue
        parts.append(f"## All families: {contest.preset}\n")
        header = ["method", *(f"{family.name} ({len(family.sections)})" for family in families)]
        lines = [line(header), line(["---"] * len(header))]
        for method in contest.methods:
            cells = [_cell(family.standings.get(method), len(family.sections)) for family in families]
            if any(cells):
                lines.append(line([escape(method[0]), *cells]))
        official = [section.task for family in families for section, _ in family.sections if section.source == "official"]
        if official:
            lines += ["", f"On official data: {escape(', '.join(official))}; the others on built-in data."]
        left = [f"{task}: {why}" for family in contest.families for task, why in family.aside]
        parts.append("\n".join([*lines, ""]) + (f"\nNot counted: {escape('; '.join(left))}.\n" if left else ""))
    return "\n".join([PREAMBLE, *parts]) if parts else ""


def _cell(found: Standing | None, num_tasks: int) -> str:
    if found is None:
        return ""
    words = standing_words(found, num_tasks)
    if found.rank is None:
        return f"{words} *{'reference' if found.state == 'reference' else 'unranked'}*"
    shown = f"**{words}**" if found.best else words
    return f"{shown}, rank {open_ranks(found.rank)}"
