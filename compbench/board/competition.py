"""One section's rows: which rows compete, which ranks the comparisons leave open, which rows may be best, and the verdict.

A row with one seed is shown but does not compete.  A failed seed counts as the worst run of the section.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compbench.board.cells import Cell, known_mean
from compbench.board.discriminability import Discriminability, discriminability
from compbench.board.fits import fits_of
from compbench.board.ranking import may_be_best, ranks_and_best
from compbench.board.row import BoardRow, failed_seeds
from compbench.board.scale import Scale, has_many_pictures, scale_of
from compbench.board.statistics import reaching
from compbench.board.verdict import Candidate, Verdict, word_of

RECALL = 0.5
"""A row draws means if its recall is below this part of real data's, so that it misses half of a condition's pictures."""


class Judged(NamedTuple):
    """The rows of a section with ranks and marks, and the section's discriminability and verdict."""

    rows: tuple[BoardRow, ...]
    discriminability: Discriminability | None
    verdict: Verdict | None


def judged(rows: Sequence[BoardRow], recalls: Mapping[str, float], *, ranks: bool = True) -> Judged:
    """Rank one section's rows, mark them, and give the verdict.

    Args:
        rows: all rows of one section, without ranks.
        recalls: by the name of a record, its recall on the primary score's split divided by real data's.
        ranks: whether rows may be ranked; otherwise there are no ranks and no verdict.
    """
    scale = scale_of_rows(rows)
    marked = [_marked(row, scale, recalls) for row in rows]
    running = [
        row for row in marked if row.kind == "run" and row.primary in row.scores and len(row.scores[row.primary].values) > 1
    ]
    if not running:
        return Judged(tuple(marked), None, None)
    values, trials = _values(running)
    found = discriminability(values, trials=trials)
    if not ranks:
        return Judged(tuple(marked), found, None)
    ranking = found is None or found.ranks
    eligible = [row for row in running if not row.draws_means]
    placed = {id(row): row for row in marked}
    if ranking and eligible:
        placed |= {id(row): own for row, own in zip(eligible, _ranked(eligible), strict=True)}
    some_draw_means = ranking and len(eligible) < len(running)  # if no row does, the tests of `_ranked` suffice
    all_best = [row for row, best in zip(running, _best(running), strict=True) if best] if some_draw_means else []
    done = tuple(placed[id(row)] for row in marked)
    return Judged(done, found, _verdict([placed[id(row)] for row in running], all_best, scale))


def scale_of_rows(rows: Sequence[BoardRow]) -> Scale | None:
    """The scale of a section's primary score, from all of its rows; None if no scale is known, as for a changed task."""
    if rows[0].section.changed:
        return None
    cells = [cell for row in rows if (cell := row.scores.get(row.primary)) is not None]
    constant = next((row.scores.get(row.primary) for row in rows if row.ignores_request), None)
    return scale_of(rows[0].section.task, rows[0].primary, cells, constant)


def seen_scale_of_rows(rows: Sequence[BoardRow]) -> Scale | None:
    """The scale of the same score on seen combinations, where larger is better: from `constant` there to real data there.

    Without records of `constant` the zero is that of held-out combinations.  None if the section has no scale or no such score.
    """
    whole = scale_of_rows(rows)
    twins = [(row, row.seen) for row in rows if row.primary.startswith("heldout_")]
    cells = [cell for _, cell in twins if cell is not None and cell.direction == "higher"]
    if whole is None or not cells:
        return None
    zero = next((cell.mean for row, cell in twins if row.ignores_request and cell is not None), whole.zero)
    real = known_mean([cell.ceiling for cell in cells])
    return Scale(zero, real) if real is not None and zero < real else None


def _marked(row: BoardRow, scale: Scale | None, recalls: Mapping[str, float]) -> BoardRow:
    """Add to a row its fits, interval and recall, and the marks that follow from them."""
    cell = row.scores.get(row.primary)
    if cell is None:
        return row
    known = [recalls[name] for name in row.records if name in recalls]
    recall = sum(known) / len(known) if known else None
    higher = cell.direction == "higher"
    return row._replace(
        scores={**row.scores, row.primary: _with_interval(cell, scale)},
        recall=recall,
        draws_means=recall is not None and recall < RECALL and not row.section.changed and has_many_pictures(row.section.task),
        worse_than_constant=scale is not None and scale.share(cell.mean) < 0 and not row.ignores_request,
        fits=fits_of(dict(cell.values), higher=higher, scale=scale, crashed=failed_seeds(row)),
    )


def _with_interval(cell: Cell, scale: Scale | None) -> Cell:
    """Widen a cell's interval by how far failed fits that were not observed could pull a mean that is better than theirs."""
    if scale is None or cell.interval is None:
        return cell
    if scale.share(cell.mean) <= 0:
        return cell._replace(even_interval=cell.interval)
    return cell._replace(interval=reaching(cell.interval, cell.mean, cell.num_seeds, scale.zero), even_interval=cell.interval)


def _values(running: Sequence[BoardRow]) -> tuple[list[dict[int, float]], int]:
    """Primary scores by seed, as shares of the largest value, and the number of trials behind a share."""
    cells = [row.scores[row.primary] for row in running]
    return [{seed: value / cell.whole for seed, value in cell.values} for cell in cells], min(cell.trials for cell in cells)


def _compared(running: Sequence[BoardRow]) -> tuple[list[dict[int, float]], int, bool]:
    """Values with the failed seeds, which count as 0 if higher is better, and otherwise as the worst run."""
    values, trials = _values(running)
    directions = Counter(row.scores[row.primary].direction for row in running)
    higher = min(directions, key=lambda name: (-directions[name], name)) == "higher"
    worst = 0.0 if higher else max(value for own in values for value in own.values())
    return [own | dict.fromkeys(failed_seeds(row), worst) for row, own in zip(running, values, strict=True)], trials, higher


def _best(running: Sequence[BoardRow]) -> list[bool]:
    values, trials, higher = _compared(running)
    return may_be_best(values, higher=higher, trials=trials)


def _ranked(running: Sequence[BoardRow]) -> list[BoardRow]:
    values, trials, higher = _compared(running)
    placed, best = ranks_and_best(values, higher=higher, trials=trials)
    return [row._replace(rank=rank, may_be_best=own) for row, rank, own in zip(running, placed, best, strict=True)]


def _verdict(running: Sequence[BoardRow], all_best: Sequence[BoardRow], scale: Scale | None) -> Verdict | None:
    """The verdict on the rows that compete; None without a scale.

    Args:
        running: the rows that compete, with ranks if the section ranks.
        all_best: the rows that may be best by the score alone, whether or not they draw means; [] if no row draws means.
    """
    if scale is None:
        return None
    by_merit = sorted(running, key=lambda row: (-scale.share(row.scores[row.primary].mean), row.label))
    best = [row for row in by_merit if row.may_be_best]
    candidates = best or [row for row in by_merit if not row.draws_means]
    seen = [share for row in running if not row.learns_nothing and (share := seen_share(row)) is not None]
    learnt = max(seen, default=None)
    word = word_of(
        [Candidate(scale.share(row.scores[row.primary].mean), bool(row.fits and row.fits.num_failed)) for row in candidates],
        learnt,
        only_means=not candidates or (bool(all_best) and all(row.draws_means for row in all_best)),
    )
    labels = tuple(row.label for row in best)
    return Verdict(word, labels, by_merit[0].label, len(running), learnt, *scale)


def seen_share(row: BoardRow) -> float | None:
    """The share of real data's score that a row reaches on seen combinations; None if the task has no such score."""
    twin = row.seen if row.primary.startswith("heldout_") else None
    return twin.mean / twin.ceiling if twin and twin.ceiling else None
