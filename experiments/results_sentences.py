"""The sentences of docs/results.md: each is a template that the published board's answers fill, so a rerun rewrites them.

Every number in a sentence comes from the records; tests/experiments/test_results_pages.py finds a typed digit.  A sentence whose
tasks have no records is left out.  If the records can support a statement or its opposite, they choose the words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from claims import Found, claims, tally
from results_tables import NUMBERS

from compbench.api.schemas import Record
from compbench.board.row import Board
from compbench.board.verdict import HALF, LEARNT, SOLVED
from compbench.board.view import Answer, Entry, View

SHAPES = {"a quarter": "shapes3d-light", "half": "shapes3d-medium", "three quarters": "shapes3d-heavy"}
EMOJI = {"a quarter": "emoji-light", "half": "emoji-medium", "three quarters": "emoji-heavy"}
"""Maps from the held-out share of the pairs to the task."""
DIGITS, POINTS, PLANS, SPRITES = "cmnist-noniid", "blobs-noniid", "planning-noniid", "dsprites-light"
BUMPS = ("bump-center", "bump-corner")
SLICED = frozenset(
    "naive-ode naive-sde slice-cfg interval-cfg cfg-plus autoguidance mcmc fkc rne driftlite superdiff coind".split()  # noqa: SIM905
)
"""Methods that add the scores of single factors around NULL."""
ORACLE = "-oracle"
"""The end of the names of methods with exact scores."""
MOST_NAMED = 4


class Known(NamedTuple):
    """The sources of the sentences: the board and its view, the claims with their verdicts, and runs on two devices."""

    board: Board
    view: View
    claims: Sequence[tuple[Found, str]]
    twins: Sequence[tuple[Record, Record]]

    def answer(self, task: str) -> Answer | None:
        return next((answer for _, answer in self.view.answers() if answer.section.task == task), None)

    def answers(self, tasks: Iterable[str]) -> dict[str, Answer]:
        return {task: found for task in tasks if (found := self.answer(task)) is not None}


def sentences(known: Known) -> list[tuple[str, tuple[str, ...]]]:
    """(sentence, the files of docs/results/ that have its numbers), for each sentence that the records support."""

    def pages(*tasks: str) -> tuple[str, ...]:
        families = {answer.section.task: question.family for question, answer in known.view.answers()}
        return tuple(dict.fromkeys(f"{families[task]}.md" for task in tasks if families.get(task)))

    shapes, plane_tasks = pages(*SHAPES.values()), pages("gauss2d-fact-id")
    made = [
        (asked_outright(known), pages(*SHAPES.values(), *EMOJI.values())),
        (sliced(known), shapes),
        (composing_is_not_learning(known), ("seen.svg",)),
        (not_learnt(known), pages(*unlearnt(known))),
        (means(known), pages(SPRITES, DIGITS)),
        (plane(known), plane_tasks),
        (particles(known), plane_tasks),
        (bumps(known), pages(*BUMPS)),
        (silos(known), pages(DIGITS, POINTS)),
        (plans(known), pages(PLANS)),
        (orders(known), pages(*(found.claim.task for found, _ in known.claims))),
        (devices(known), ("processors.md",)),
    ]
    return [(said, files) for said, files in made if said]


def asked_outright(known: Known) -> str:
    """What may be best on Shapes3D, and on drawings by artists, for each held-out share of the pairs."""
    held_out = {"On Shapes3D pairs of shape and hue": SHAPES, "On emoji, pairs of role and skin tone": EMOJI}
    said = []
    for pairs, tasks in held_out.items():
        found = {part: answer for part, task in tasks.items() if (answer := known.answer(task)) and answer.best}
        if found:
            said.append(f"{pairs} are held out: {'; '.join(f'with {part}, {candidates(own)}' for part, own in found.items())}.")
    return " ".join(said)


def sliced(known: Known) -> str:
    """The best method that composes around NULL, for each held-out share."""
    best = {part: leader(answer, SLICED) for part, task in SHAPES.items() if (answer := known.answer(task))}
    found = [f"{entry.score} with {part} unseen ({code(entry.row.method)})" for part, entry in best.items() if entry]
    whole = [share for entry in best.values() if entry and (share := entry.seen) is not None]
    if not found:
        return ""
    least = f"; these methods attain at least {percent(min(whole))} on seen combinations" if whole else ""
    at_best = (
        f"On Shapes3D, methods that add scores of single factors to the unconditional one have at best {listed(found)}{least}."
    )
    return f"{at_best}{additive(known)}"


def additive(known: Known) -> str:
    """The scores on Shapes3D of adding mean effects to real seen pictures, and how many trained methods score no higher."""
    answers = [answer for task in SHAPES.values() if (answer := known.answer(task))]
    own = [(entry, answer) for answer in answers if (entry := leader(answer, {"additive"}))]
    if not own or len(own) < len(answers):
        return ""
    trained = [[other for other in answer.competing if not other.row.learns_nothing] for _, answer in own]
    beaten = [
        f"{sum((other.share or 0.0) <= (entry.share or 0.0) for other in others)} of {len(others)}"
        for (entry, _), others in zip(own, trained, strict=True)
    ]
    return (
        f" {code('additive')}, which learns nothing, has {listed([entry.score for entry, _ in own])} there, and "
        f"{listed(beaten)} trained methods have no better mean."
    )


def composing_is_not_learning(known: Known) -> str:
    ran = (entry for _, answer in known.view.answers() for entry in answer.competing)
    entries = [entry for entry in ran if not entry.row.learns_nothing]
    known_twice = [entry for entry in entries if entry.seen is not None and entry.share is not None]
    learnt = [entry for entry in known_twice if entry.seen is not None and entry.seen >= LEARNT]
    lost = [entry for entry in learnt if entry.share is not None and entry.share < HALF]
    if not learnt:
        return ""
    return (
        f"Learning is not composing: of {len(known_twice)} pairs of a trained method and a task {len(learnt)} attain "
        f"{percent(LEARNT)} or more on seen combinations, and {len(lost)} of these less than {percent(HALF)} on unseen ones."
    )


def not_learnt(known: Known) -> str:
    poor = unlearnt(known)
    if not poor:
        return ""
    said = listed([f"{code(task)} ({percent(part)})" for task, part in sorted(poor.items())])
    return (
        f"No ranked method that is trained has {percent(LEARNT)} of real data's score on seen combinations of {said}, where the "
        "best is in brackets. They rank learning, not composing."
    )


def means(known: Known) -> str:
    """The task on which a row that draws means would be first by accuracy, and how many such rows there are."""
    drawn = [(task, entry) for task in (SPRITES, DIGITS) if (answer := known.answer(task)) for entry in blurred(answer)]
    if not drawn:
        return ""
    task, top = max(drawn, key=lambda one: one[1].share or 0.0)
    tasks = listed(sorted({code(task) for task, _ in drawn}))
    recall = percent(top.row.recall or 0.0)
    competing = sum(entry.state != "reference" for _, entry in drawn)
    references = f" and {number(len(drawn) - competing)} references" if competing < len(drawn) else ""
    return (
        f"A judge's accuracy also rewards blurred means: on {code(task)} {code(top.row.method)} has {top.score}, but {recall} of "
        f"real data's recall. On {tasks} {number(competing)} methods{references} have less than half of that recall, so "
        "they cannot be best."
    )


def plane(known: Known) -> str:
    answers = [answer for question, answer in known.view.answers() if question.family == "plane" and answer.competing]
    worse = {answer.section.task: sum(entry.row.worse_than_constant for entry in answer.competing) for answer in answers}
    if not answers:
        return ""
    by_task = {answer.section.task: solvers(answer) for answer in answers if answer.verdict == "solved"}
    solved, unsolved = [code(name) for name in by_task], [code(one.section.task) for one in answers if one.verdict == "unsolved"]
    none_solves_all = len(by_task) > 1 and not set.intersection(*by_task.values())
    task = max(worse, key=lambda name: worse[name])
    of = next(len(answer.competing) for answer in answers if answer.section.task == task)
    first = f"On the plane, some method with learnt scores solves {listed(solved) or 'no target'}"
    first += ", but no method solves all of them" if none_solves_all else ""
    first += f"; {listed(unsolved)} {'is' if len(unsolved) == 1 else 'are'} unsolved" if unsolved else ""
    return f"{first}. On {code(task)} {worse[task]} of {of} methods are worse than seen points, whatever is asked."


def particles(known: Known) -> str:
    """Results of weighted particles on exact and on learnt scores."""
    own = [(found, said) for found, said in known.claims if found.claim.paper == "FKC"]
    exact, learnt = (
        [(found, said) for found, said in own if found.claim.place == f"{which} scores" and not found.older]
        for which in ("exact", "learnt")
    )
    if not exact:
        return ""

    def nearer(found: Found) -> bool:
        return (found.gain > 0) == found.claim.better.method.startswith("fkc")

    def settled(pairs: Sequence[tuple[Found, str]], *, ahead: bool) -> int:
        return sum(nearer(found) == ahead and said.startswith("**") for found, said in pairs)

    near, far = ([one for one in learnt if one[0].claim.task.endswith(end)] for end in ("-id", "-ood"))
    said = (
        f"With exact scores, weighted particles (`fkc`) end nearer to the target than `naive-sde` on {share_of(exact, nearer)} "
        f"targets ({settled(exact, ahead=True)} significantly)"
    )
    if not near or not far:
        return f"{said}."
    return (
        f"{said}, and with learnt ones on {share_of(near, nearer)} among the sources and {share_of(far, nearer)} far from them "
        f"({settled(learnt, ahead=True)} significantly, `naive-sde` on {settled(learnt, ahead=False)})."
    )


def bumps(known: Known) -> str:
    answers = known.answers(BUMPS)
    if len(answers) < len(BUMPS):
        return ""
    good = [method for method in ranked(answers[BUMPS[0]]) if all(method in ranked(answer) for answer in answers.values())]
    around = {task: part_right(entry) for task, answer in answers.items() if (entry := leader(answer, SLICED))}
    most = listed([f"{percent(right)} ({code(task)})" for task, right in around.items() if right is not None]) or "none"
    return (
        f"{named(good) or 'No method'} may be best both with the centre and with a corner held out; methods that add scores "
        f"draw at most {most} of the held-out bumps right."
    )


def silos(known: Known) -> str:
    digits, points = known.answer(DIGITS), known.answer(POINTS)
    if digits is None or points is None or not digits.best or not points.best:
        return ""
    cheap, dear = digits.cheapest, max(digits.best, key=lambda entry: entry.cost or 0.0)
    cost = f"; training and samples of the cheapest take {cheap.cost_words}" if cheap else ""
    if cheap and dear is not cheap:
        cost += f", of the most expensive {dear.cost_words}"
    return (
        f"With digits in ten silos {named(ranked(digits))} may be best ({digits.best[0].score}; real data {digits.real}{cost}). "
        f"With points in two silos {named(ranked(points))} may be best ({points.best[0].score}; real data {points.real})."
    )


def plans(known: Known) -> str:
    answer = known.answer(PLANS)
    if answer is None or not answer.best:
        return ""
    parts = [right for entry in answer.best if (right := part_right(entry)) is not None]
    between = f"{percent(min(parts))} to {percent(max(parts))}" if len(parts) > 1 else percent(parts[0])
    return (
        f"Planning with data in two silos: {named(ranked(answer))} may be best. They reach {between} of the goals, and recorded "
        f"plans {answer.real.removesuffix(' reached')}. {answer.older}".strip()
    )


def puzzle(answer: Answer) -> str:
    """What the best method has with exact scores, the best other one, greedy repair, and trained methods on seen rules."""
    exact = sorted(
        (entry for entry in answer.entries if entry.row.method.endswith(ORACLE)), key=lambda entry: -(entry.share or 0.0)
    )
    repair = next((cell for entry in exact if (cell := entry.row.scores.get("heldout_greedy_repair"))), None)
    if not exact or repair is None:
        return ""
    first = exact[0]
    same, others = ([entry for entry in exact[1:] if (entry.row.method == first.row.method) == how] for how in (True, False))
    if not others:
        return ""
    best = first.score + (f" with {code(first.row.variant)}" if same else "")
    best += "".join(f" ({entry.score} with {code(entry.row.variant)})" for entry in same)
    said = (
        f"With exact scores {code(first.row.method)} has {best} and {code(others[0].row.method)}, the next best, "
        f"{others[0].score}; a greedy search that knows the rules repairs {percent(repair.mean)} of random answers."
    )
    learnt = [entry.row.seen.mean for entry in answer.entries if is_trained(entry) and entry.row.seen]
    if not learnt:
        return said
    between = f"between {percent(min(learnt))} and {percent(max(learnt))}" if len(learnt) > 1 else percent(learnt[0])
    return f"{said} With learnt ones answers to one group of rules alone are valid in {between} of cases."


def is_trained(entry: Entry) -> bool:
    return entry.state != "reference" and not entry.row.learns_nothing


def orders(known: Known) -> str:
    if not known.claims:
        return ""
    found = tally([verdict for _, verdict in known.claims])
    waits = f" {number(found.waiting)} wait for runs of a repaired method or task," if found.waiting else ""
    every = claims()
    lacking = len(every) - len(known.claims)
    unrun = f" {number(lacking)} {'has' if lacking == 1 else 'have'} no runs," if lacking else ""
    papers = [one.paper for one in every]
    argued = papers.count("FKC")
    ours = f" ({argued} by FKC's argument, since our copy of it has no numbers)" if argued else ""
    return (
        f"Of {len(papers)} orders of two methods that {number(len(set(papers)))} papers claim{ours}, {found.holds} hold here, "
        f"{found.against} are reversed,{waits}{unrun} and {found.open} stay open, "
        "with Holm's correction over each paper's claims."
    )


def devices(known: Known) -> str:
    """The largest difference between two devices' scores of one spec."""
    gaps = []
    for one, other in known.twins:
        first = next(score for score in one.scores if score.primary)
        second = other.score(first.name)
        if "accuracy" in first.name and first.value is not None and second and second.value is not None:
            gaps.append((abs(first.value - second.value), first, second, one.spec))
    if not gaps:
        return ""
    _, first, second, spec = max(gaps, key=lambda gap: gap[0])
    return (
        f"Of {number(len(gaps))} specs that ran on a CPU and, with another version of torch, on a GPU, {code(spec.method)} on "
        f"{code(spec.task)} differs most ({percent(first.value or 0.0)} and {percent(second.value or 0.0)})."
    )


# -- words


def candidates(answer: Answer) -> str:
    """The methods that may be best, that with the best mean first and with its score."""
    first, *others = (code(name) for name in ranked(answer))
    led = f"{first} ({answer.best[0].score})"
    few = len(others) < MOST_NAMED
    return f"{listed([led, *others])} may be best" if few else f"{led} and {number(len(others))} more may be best"


def ranked(answer: Answer) -> list[str]:
    """Names of the methods that may be best, the best mean first."""
    return list(dict.fromkeys(entry.row.method for entry in answer.best))


def leader(answer: Answer, methods: Collection[str]) -> Entry | None:
    """The entry with the best mean among some competing methods."""
    own = [entry for entry in answer.competing if entry.row.method in methods and entry.share is not None]
    return max(own, key=lambda entry: entry.share or 0.0, default=None)


def blurred(answer: Answer) -> list[Entry]:
    """Entries that draw means, references included."""
    return [entry for entry in answer.entries if entry.row.draws_means]


def solvers(answer: Answer) -> set[str]:
    """Methods that may be best and attain enough to solve the task."""
    return {entry.row.method for entry in answer.best if (entry.share or 0.0) >= SOLVED}


def unlearnt(known: Known) -> dict[str, float]:
    """The largest part of real data's score that a method reached on seen combinations, by task that none has learnt."""
    verdicts = ((answer.section.task, known.board.verdicts.get(answer.section)) for _, answer in known.view.answers())
    return {task: one.unlearnt for task, one in verdicts if one and one.unlearnt is not None}


def share_of(pairs: Sequence[tuple[Found, str]], holds: Callable[[Found], bool]) -> str:
    return f"{sum(holds(found) for found, _ in pairs)} of {len(pairs)}"


def named(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - MOST_NAMED + 1
    said = [code(name) for name in names]
    return listed([*said[: MOST_NAMED - 1], f"{number(more)} more"] if more > 1 else said)


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def code(name: str) -> str:
    return f"`{name}`"


def part_right(entry: Entry) -> float | None:
    """The entry's accuracy or rate, as a fraction of 1."""
    return entry.cell.mean / entry.cell.whole if entry.cell else None
