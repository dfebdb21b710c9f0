"""Puzzles as products of constraints: queens on a board, colours of a graph, clauses of a formula.

Each puzzle has a base law p_0 without constraints, and groups of constraints.  A group's constraints touch each position at most
once, so its law p_i, which is p_0 given these constraints, has independent blocks (`constraint_laws`).  The product

    p_0 prod_i (p_i / p_0)

is p_0 given all constraints.  It is what methods are asked for, and has no closed form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import NamedTuple

from compbench.system.errors import CompbenchError

NUM_COLOURS = 3
LITERALS = 3
"""Number of literals in a clause."""
MOST_STEPS = 2_000_000
"""Number of signs after which `num_answers` gives up; they take some seconds."""
NUM_ORDERS = 50
"""Number of orders in which members are grouped; the best grouping is kept."""


class Lines(NamedTuple):
    """Disjoint sets of positions, and the allowed signs of each set, with weights.

    Attributes:
        positions: the positions of each set; all sets have one size k.
        patterns: the allowed signs, k for each pattern.
        weights: weights of the patterns, not normalised.
    """

    positions: tuple[tuple[int, ...], ...]
    patterns: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]


class Puzzle(NamedTuple):
    """A puzzle over some signs.

    Attributes:
        dimension: number of signs of an answer.
        base: the law without constraints; each law holds every position once.
        groups: by the factor's name, the law of each group of constraints alone.
        edges: pairs of vertices, if the puzzle is a graph.
    """

    dimension: int
    base: tuple[Lines, ...]
    groups: dict[str, tuple[Lines, ...]]
    edges: tuple[tuple[int, int], ...] = ()


def queens(size: int) -> Puzzle:
    """A queen in each row and column, and at most one on each diagonal, of a board with `size` squares a side.

    In the base each square has a queen with probability 1 / size, so if a row has one queen, each of its squares is as likely.
    """
    odds = 1 / (size - 1) if size > 1 else 1.0
    squares = [(row, column) for row in range(size) for column in range(size)]
    base = _lines([[place] for place in range(size**2)], odds, least=0)
    rows = [[row * size + column for column in range(size)] for row in range(size)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    down = _by(squares, size, lambda row, column: row - column)
    up = _by(squares, size, lambda row, column: row + column)
    groups = {
        "rows": _by_length(rows, odds, least=1),
        "columns": _by_length(columns, odds, least=1),
        "diagonals": _by_length(down, odds, least=0),
        "antidiagonals": _by_length(up, odds, least=0),
    }
    return Puzzle(size**2, (base,), groups)


def colouring(num_vertices: int, degree: float, seed: int) -> Puzzle:
    """Three colours of a random graph (Erdos and Renyi) such that neighbours differ; some such colouring exists.

    Edges join vertices of different colours of a hidden colouring.  They are grouped greedily into matchings.

    Args:
        degree: mean number of neighbours.
        seed: seed of the graph.
    """
    chance = random.Random(seed)
    hidden = [vertex % NUM_COLOURS for vertex in range(num_vertices)]
    chance.shuffle(hidden)
    allowed = [pair for pair in combinations(range(num_vertices), 2) if hidden[pair[0]] != hidden[pair[1]]]
    count = round(num_vertices * degree / 2)
    if not 0 < count <= len(allowed):
        raise CompbenchError(
            f"a graph of {num_vertices} vertices with {degree:g} neighbours each has {count} edges; only 1 to "
            f"{len(allowed)} edges leave a colouring: change task.size or task.density."
        )
    edges = tuple(sorted(chance.sample(allowed, count)))
    one_hot = tuple(tuple(1 if place == colour else -1 for place in range(NUM_COLOURS)) for colour in range(NUM_COLOURS))
    places = [tuple(range(vertex * NUM_COLOURS, (vertex + 1) * NUM_COLOURS)) for vertex in range(num_vertices)]
    differing = tuple(one + other for one, other in product(one_hot, one_hot) if one != other)
    groups: dict[str, tuple[Lines, ...]] = {}
    for number, members in enumerate(disjoint(edges), 1):
        matching = [edges[place] for place in members]
        pairs = Lines(tuple(places[one] + places[other] for one, other in matching), differing, (1.0,) * len(differing))
        free = tuple(own for vertex, own in enumerate(places) if not any(vertex in edge for edge in matching))
        single = Lines(free, one_hot, (1.0,) * NUM_COLOURS)
        groups[f"edges {number}"] = (pairs, single) if free else (pairs,)
    base = Lines(tuple(places), one_hot, (1.0,) * NUM_COLOURS)
    return Puzzle(NUM_COLOURS * num_vertices, (base,), groups, edges)


def satisfiability(num_variables: int, ratio: float, seed: int) -> Puzzle:
    """A random formula of clauses with three literals each, which some hidden assignment satisfies.

    Clauses are grouped greedily, so that no two clauses of a group share a variable.

    Args:
        ratio: clauses for each variable.
        seed: seed of the formula.
    """
    if num_variables < LITERALS:
        raise CompbenchError(f"a clause has {LITERALS} variables, and task.size={num_variables} leaves fewer.")
    chance = random.Random(seed)
    hidden = [chance.choice((-1, 1)) for _ in range(num_variables)]
    clauses: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    while len(clauses) < max(1, round(ratio * num_variables)):
        chosen = tuple(sorted(chance.sample(range(num_variables), LITERALS)))
        signs = tuple(chance.choice((-1, 1)) for _ in chosen)
        if any(hidden[variable] == sign for variable, sign in zip(chosen, signs, strict=True)):
            clauses.append((chosen, signs))
    groups: dict[str, tuple[Lines, ...]] = {}
    for number, members in enumerate(disjoint([variables for variables, _ in clauses]), 1):
        lines = []
        for variables, signs in (clauses[place] for place in members):
            patterns = tuple(
                one for one in product((-1, 1), repeat=LITERALS) if any(a == b for a, b in zip(one, signs, strict=True))
            )
            lines.append(Lines((variables,), patterns, (1.0,) * len(patterns)))
        used = {variable for own in lines for variable in own.positions[0]}
        free = [[variable] for variable in range(num_variables) if variable not in used]
        groups[f"clauses {number}"] = (*lines, _lines(free, 1.0, least=0)) if free else tuple(lines)
    base = _lines([[variable] for variable in range(num_variables)], 1.0, least=0)
    return Puzzle(num_variables, (base,), groups)


def num_answers(puzzle: Puzzle, most: int, most_steps: int = MOST_STEPS) -> int | None:
    """Number of answers that break no constraint, at most `most`; None if the search takes more than `most_steps` signs.

    Signs are set one after the other, and a sign that leaves some line without a pattern is taken back.
    """
    lines = [(places, own.patterns) for law in (puzzle.base, *puzzle.groups.values()) for own in law for places in own.positions]
    kept: list[list[tuple[int, dict[int, int]]]] = [
        [] for _ in range(puzzle.dimension)
    ]  # for each place: its lines, and the patterns that each sign leaves
    for number, (places, patterns) in enumerate(lines):
        for k, place in enumerate(places):
            fits = {sign: sum(1 << m for m, pattern in enumerate(patterns) if pattern[k] == sign) for sign in (-1, 1)}
            kept[place].append((number, fits))
    alive = [(1 << len(patterns)) - 1 for _, patterns in lines]
    undo: list[list[tuple[int, int]]] = []  # what each sign that is set has changed
    left = [[-1, 1]]  # signs still to be tried at each place
    found = steps = 0
    while left:
        if len(undo) == len(left):  # back at this place: take its last sign back
            for number, before in undo.pop():
                alive[number] = before
        if not left[-1]:
            left.pop()
            continue
        sign, steps = left[-1].pop(), steps + 1
        if steps > most_steps:
            return None
        undo.append([])
        for number, fits in kept[len(left) - 1]:
            undo[-1].append((number, alive[number]))
            alive[number] &= fits[sign]
        if not all(alive[number] for number, _ in undo[-1]):
            continue
        if len(left) < puzzle.dimension:
            left.append([-1, 1])
            continue
        found += 1
        if found == most:
            break
    return found


def disjoint(members: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Indices of the members in groups without shared elements, in as few groups as some greedy groupings find.

    Each member is put into the first group that it fits; of several orders, the one with the fewest groups is kept.
    """
    chance = random.Random(0)
    orders = [chance.sample(range(len(members)), len(members)) for _ in range(NUM_ORDERS)]
    return min((_first_fit(members, order) for order in orders), key=len)


def _first_fit(members: Sequence[tuple[int, ...]], order: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    taken: list[set[int]] = []
    for place in order:
        number = next((k for k, own in enumerate(taken) if not own & set(members[place])), len(groups))
        if number == len(groups):
            groups.append([])
            taken.append(set())
        groups[number].append(place)
        taken[number] |= set(members[place])
    return groups


def _by_length(lines: Sequence[Sequence[int]], odds: float, *, least: int) -> tuple[Lines, ...]:
    """Lines of squares with at most one queen each, grouped by their length."""
    lengths = sorted({len(line) for line in lines})
    return tuple(_lines([line for line in lines if len(line) == length], odds, least=least) for length in lengths)


def _lines(lines: Sequence[Sequence[int]], odds: float, *, least: int) -> Lines:
    """Lines of one length with one sign up, or none if `least` is 0; one sign up has `odds` times the weight of none."""
    length = len(lines[0])
    ups = [up for count in range(least, 2) for up in combinations(range(length), count)]
    patterns = tuple(tuple(1 if place in up else -1 for place in range(length)) for up in ups)
    return Lines(tuple(map(tuple, lines)), patterns, tuple(odds ** len(up) for up in ups))


def _by(squares: Iterable[tuple[int, int]], size: int, key: Callable[[int, int], int]) -> list[list[int]]:
    """Squares of a board in lines of equal keys."""
    lines: dict[int, list[int]] = {}
    for row, column in squares:
        lines.setdefault(key(row, column), []).append(row * size + column)
    return list(lines.values())
