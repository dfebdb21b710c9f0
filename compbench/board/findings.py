"""Summarise a leaderboard table in three sentences: the leading methods, their cost, and what cannot be ranked."""

from __future__ import annotations

from collections.abc import Sequence

from compbench.board.families import NEARLY, NOT_RUN, Contest, Family, Standing
from compbench.board.notation import count
from compbench.board.statistics import mean

WORTH_SAYING = 1.5
"""Smallest ratio of training FLOPs that is reported as a saving."""
MOST_NAMED = 4
"""Largest number of methods that a sentence names; the table next to it lists all."""


def train_flops(found: Standing) -> float | None:
    """Mean training FLOPs over the tasks of a family that a method ran; None where one of them is not known."""
    known = [row.timing.train_flops if row.timing else None for row in found.rows]
    return mean([flops for flops in known if flops is not None]) if known and None not in known else None


def findings(contest: Contest) -> tuple[str, ...]:
    """At most three sentences."""
    said = (_leaders(contest), _savings(contest), _open(contest))
    return tuple(sentence for sentence in said if sentence)


def _ranked(family: Family) -> list[tuple[str, Standing]]:
    own = [(method, found) for (method, _), found in family.standings.items() if found.rank]
    return sorted(own, key=lambda item: (item[1].rank.rank if item[1].rank else 0, item[0]))


def _leaders(contest: Contest) -> str:
    parts = []
    for family in contest.families:
        ranked = _ranked(family)
        if len(ranked) < 2:
            continue
        best = [method for method, found in ranked if found.best]
        others = [method for method, found in ranked if found.rank and found.rank.group == 1 and not found.best]
        share = f"{'up to ' * (len(best) > 1)}{max(found.mean for _, found in ranked):.2f} of what real data attain"
        if len(best) + len(others) == len(ranked):
            lead, whom = ("leads", "it") if len(best) == 1 else ("lead", "them")
            said = f"{_some(best)} {lead} ({share}), and nothing is told apart from {whom}"
        elif len(best) > 1:
            said = f"{_some(best)} are best and not told apart ({share})"
        else:
            said = f"{best[0]} {'leads' if others else 'is best'} ({share})"
        if others and len(best) + len(others) < len(ranked):  # far behind by their means, with too few seeds to say so
            said += f", and {_some(others)} {'is' if len(others) == 1 else 'are'} not shown to be worse"
        parts.append(f"on {family.name} {said}")
    return _sentence("; ".join(parts))


def _savings(contest: Contest) -> str:
    """The largest saving: of the methods that attain nearly as much as a family's best, the cheapest to train and the dearest."""
    best: tuple[float, str] | None = None
    for family in contest.families:
        ranked = [(method, found, flops) for method, found in _ranked(family) if (flops := train_flops(found))]
        top = max((found.mean for _, found, _ in ranked), default=0.0)
        near = [(flops, found.mean, method) for method, found, flops in ranked if found.mean >= NEARLY * top > 0]
        if not near:
            continue
        least, share, cheap = min(near, key=lambda one: (one[0], -one[1], one[2]))
        most, other, dear = max(near)
        if most >= WORTH_SAYING * least and (best is None or most / least > best[0]):
            said = f"{share / other:.0%}".replace("%", " %")
            cost = f"{count(least)}FLOP instead of {count(most)}FLOP"
            best = most / least, f"on {family.name} {cheap} attains {said} of {dear}'s share with {cost} of training"
    return _sentence(best[1]) if best else ""


def _open(contest: Contest) -> str:
    unranked = [task for family in contest.families for task, why in family.aside if why.startswith("does not rank")]
    missing = [task for family in contest.families for task, why in family.aside if why == NOT_RUN]
    states = [found.state for family in contest.families for found in family.standings.values()]
    parts = []
    if unranked:
        parts.append(f"at this preset {_listed(unranked)} {'does' if len(unranked) == 1 else 'do'} not tell methods apart")
    if missing:
        parts.append(f"no method ran {_listed(missing)}")
    if few := states.count("one seed") + states.count("incomplete"):
        parts.append(f"{few} of {sum(state != 'reference' for state in states)} places are unranked for want of tasks or seeds")
    return _sentence("; ".join(parts))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _some(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - MOST_NAMED + 1
    return _listed([*names[: MOST_NAMED - 1], f"{more} more"] if more > 1 else names)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
