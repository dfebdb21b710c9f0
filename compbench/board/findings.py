"""Summarise a leaderboard table in short sentences: which methods may be best, their costs, and what the table cannot order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compbench.board.families import NEARLY, NOT_LEARNT, NOT_RUN, Contest, Family, Standing
from compbench.board.view import family_cost, flop_words

WORTH_SAYING = 1.5
"""Smallest cost ratio that is reported as a saving."""
MOST_NAMED = 4
"""Largest number of methods that a sentence names; the table next to it lists all."""


def findings(contest: Contest) -> tuple[str, ...]:
    """Sentences of at most 25 words."""
    said = [*(_leaders(family) for family in contest.families), *(_by_rule(family) for family in contest.families)]
    said += [_worse(contest), _savings(contest), *_left_open(contest)]
    return tuple(sentence for sentence in said if sentence)


def _ranked(family: Family) -> list[tuple[str, Standing]]:
    own = [(method, found) for (method, _), found in family.standings.items() if found.rank]
    return sorted(own, key=lambda item: (item[1].rank.rank if item[1].rank else 0, item[0]))


def _leaders(family: Family) -> str:
    """The methods that may be best over a family."""
    ranked = _ranked(family)
    if len(ranked) < 2:
        return ""
    best = [method for method, found in ranked if found.best]
    share = f"{max(found.mean for _, found in ranked):.2f}"
    if len(best) == 1:
        return f"On {family.name} {best[0]} is best: it attains {share} of what real data attain."
    return f"On {family.name} {_some(best)} may be best; they attain up to {share} of what real data attain."


def _by_rule(family: Family) -> str:
    if not family.depends_on_rule:
        return ""
    share, rank = _some(family.first_by_share), _some(family.first_by_rank)
    return f"The first on {family.name} depends on the rule: {share} by mean share, {rank} by mean rank."


def _worse(contest: Contest) -> str:
    """The task on which the most competing methods are worse than ignoring the request, if at least half are."""
    worse, all_of = Counter[str](), Counter[str]()
    for family in contest.families:
        for row in (row for found in family.standings.values() for row in found.rows if row.kind == "run"):
            all_of[row.section.task] += 1
            worse[row.section.task] += row.worse_than_constant
    task = max(sorted(all_of), key=lambda task: worse[task] / all_of[task], default="")
    if not task or 2 * worse[task] < all_of[task]:
        return ""
    verb = "is" if worse[task] == 1 else "are"
    return f"On {task} {worse[task]} of {all_of[task]} methods {verb} worse than ignoring the request."


def _savings(contest: Contest) -> str:
    """The largest saving: the cheapest and the most expensive of the methods that attain nearly as much as a family's best."""
    best: tuple[float, str] | None = None
    for family in contest.families:
        ranked = [(method, found, flops) for method, found in _ranked(family) if (flops := family_cost(found))]
        top = max((found.mean for _, found, _ in ranked), default=0.0)
        near = [(flops, found.mean, method) for method, found, flops in ranked if found.mean >= NEARLY * top > 0]
        if not near:
            continue
        least, share, cheap = min(near, key=lambda one: (one[0], -one[1], one[2]))
        most, other, dear = max(near)
        if most >= WORTH_SAYING * least and (best is None or most / least > best[0]):
            said = f"{share / other:.0%}".replace("%", " %")
            cost = f"{flop_words(least)} instead of {flop_words(most)}"
            best = most / least, f"On {family.name} {cheap} attains {said} of {dear}'s share with {cost}, samples included."
    return best[1] if best else ""


def _left_open(contest: Contest) -> list[str]:
    """What the table does not order, and why."""
    aside = [pair for family in contest.families for pair in family.aside]
    unranked = [task for task, why in aside if why.startswith("does not rank")]
    unlearnt = [task for task, why in aside if why.startswith(NOT_LEARNT)]
    missing = [task for task, why in aside if why == NOT_RUN]
    said = []
    if unlearnt:
        said.append(f"No ranked method masters the seen combinations of {_listed(unlearnt)}, so methods are not ordered there.")
    if unranked:
        said.append(f"At this preset {_listed(unranked)} {'does' if len(unranked) == 1 else 'do'} not separate methods.")
    ran = {row.section.task for family in contest.families for found in family.standings.values() for row in found.rows}
    if missing and len(missing) < len(ran):  # a private board of a few runs need not list everything that was not run
        said.append(f"No method ran {_listed(missing)}.")
    return said


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _some(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - MOST_NAMED + 1
    return _listed([*names[: MOST_NAMED - 1], f"{more} more"] if more > 1 else names)
