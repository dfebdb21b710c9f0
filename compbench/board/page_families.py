"""The first screen of the page, as JSON: the matrix of methods by families, and the known facts about each method."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from compbench.api.context import PRESETS
from compbench.board.families import Contest, Family
from compbench.board.findings import findings
from compbench.board.notation import open_ranks, share_words, standing_words
from compbench.board.papers import PaperFigure
from compbench.board.row import BoardRow
from compbench.board.view import family_cost, family_rate, flop_words
from compbench.registry.method_source import default_settings_of, version_of
from compbench.registry.registry import Registry
from compbench.store.format import clean
from compbench.system.files import Json

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,199}")
"""Pattern of a module's dotted name; any other text of a record could become an arbitrary path."""

MOST_WORDS = 14
"""Largest number of words about a method on the first screen."""


class MethodFacts(NamedTuple):
    """Facts about a method that are not in its records; "" where unknown.

    Attributes:
        summary: its idea.
        address: address of its file, as seen from the page.
        distribution, version, defaults: the package that it comes from, and the version and default settings in its source.
    """

    summary: str = ""
    address: str = ""
    distribution: str = ""
    version: int = 0
    defaults: Mapping[str, Json] = {}


def contest_data(contest: Contest) -> dict[str, Json]:
    """One contest as JSON: a column for each family, a row for each method."""
    families = [family for family in contest.families if family.sections]
    return {
        "preset": contest.preset,
        "families": [_family(family) for family in families],
        "aside": [[task, why] for family in contest.families for task, why in family.aside],
        "methods": [
            {"method": method, "origin": clean(origin), "cells": [_cell(family, (method, origin)) for family in families]}
            for method, origin in contest.methods
            if any((method, origin) in family.standings for family in families)
        ],
        "findings": [clean(sentence) for sentence in findings(contest)],
        "ranked": sum(found.rank is not None for family in families for found in family.standings.values()),
    }


def _family(family: Family) -> dict[str, Json]:
    return {
        "name": family.name,
        "tasks": [section.task for section, _ in family.sections],
        "depends": family.depends_on_rule,
        "official": [section.task for section, _ in family.sections if section.source == "official"],
    }


def _cell(family: Family, method: tuple[str, str]) -> dict[str, Json] | None:
    found = family.standings.get(method)
    if found is None:
        return None
    flops, rate = family_cost(found), family_rate(found)
    low, high = found.interval or (None, None)
    return {
        "state": found.state,
        "mean": round(found.mean, 4),
        "text": share_words(found.mean),
        "words": standing_words(found, len(family.sections)),
        "low": None if low is None else round(low, 4),
        "high": None if high is None else round(high, 4),
        "rank": found.rank.rank if found.rank else None,
        "open": open_ranks(found.rank),
        "best": found.best,
        "meanRank": None if found.mean_rank is None else round(found.mean_rank, 1),
        "ran": found.num_tasks,
        "why": [clean(reason) for reason in found.left_out],
        "flops": None if flops is None else float(f"{flops:.4g}"),
        "cost": flop_words(flops),
        "rate": None if rate is None else float(f"{rate:.3g}"),
    }


def default_contest(contests: Sequence[Contest]) -> int:
    """Index of the contest shown first: most ranked cells, then most cells, then preset `standard`; `smoke` comes last."""

    def place(index: int) -> tuple[object, ...]:
        contest = contests[index]
        places = [found.rank is not None for family in contest.families for found in family.standings.values()]
        return contest.preset != "smoke", sum(places), len(places), contest.preset == "standard", PRESETS.index(contest.preset)

    return max(range(len(contests)), key=place, default=0)


def method_data(
    rows: Sequence[BoardRow], figures: Sequence[PaperFigure], facts: Mapping[str, MethodFacts]
) -> list[dict[str, Json]]:
    """Facts about each method that has rows, by name."""
    names = sorted({row.method for row in rows})
    return [
        {
            "method": name,
            "summary": (summary := clean(facts.get(name, MethodFacts()).summary)),
            "gloss": gloss(summary),
            "address": facts.get(name, MethodFacts()).address,
            "papers": [_figure(figure) for figure in figures if figure.method == name],
        }
        for name in names
    ]


def gloss(summary: str) -> str:
    """A summary up to its first colon, semicolon or full stop, in at most `MOST_WORDS` words."""
    words = re.split(r"[:;.](?=\s|$)", summary, maxsplit=1)[0].split()
    return " ".join(words) if len(words) <= MOST_WORDS else " ".join(words[:MOST_WORDS]) + " …"


def _figure(figure: PaperFigure) -> dict[str, Json]:
    return {
        "task": figure.task,
        "score": figure.score,
        "mean": figure.mean,
        "text": f"{figure.mean:g}" + ("" if figure.std is None else f" ± {figure.std:g}"),
        "paper": clean(figure.paper + figure.place),
    }


def method_facts(modules: Mapping[str, str], output: Path, root: Path) -> dict[str, MethodFacts]:
    """Facts of methods from the installed plugins' docstrings, read without importing them, and from the repository's files.

    Args:
        modules: module of each method, by name.
        output: folder of the page.
        root: the repository that may hold the plugins' files.
    """
    installed = {entry.name: entry for entry in Registry().entries("methods")}
    found = {}
    for name, module in modules.items():
        path = next(iter(sorted(root.glob(f"plugins/*/{module.replace('.', '/')}.py"))), None) if NAME.fullmatch(module) else None
        way = quote(os.path.relpath(path, output.resolve()).replace(os.sep, "/")) if path else ""
        entry = installed.get(name)
        known = (entry.distribution, version_of(entry), default_settings_of(entry)) if entry else ("", 0, {})
        found[name] = MethodFacts(entry.summary if entry else "", way, *known)
    return found
