"""Rewrite the assertions of test files once a session, before pytest-xdist starts its workers.

pytest rewrites each test file so that a failed `assert` shows its values, and keeps what it wrote in `__pycache__`.  In a fresh
checkout the workers start together, and each would rewrite every file: of 47 CPU seconds that a worker then takes to collect
this suite, 37 are that.  Here the process above them does it first, its share of the files on each core.

It uses names of pytest that are private.  Where a version has others, nothing is done, and the workers rewrite as ever.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest


def rewrite_once(config: pytest.Config) -> None:
    """Keep the rewritten form of each test file that will be collected, if workers are about to start and none is kept yet."""
    workers = getattr(config.option, "numprocesses", None)
    if not workers or sys.dont_write_bytecode or config.option.assertmode != "rewrite" or not hasattr(os, "fork"):
        return
    files = files_of(config)
    cores = len(os.sched_getaffinity(0))
    children = []
    for share in (files[place::cores] for place in range(cores)):
        if child := os.fork():
            children.append(child)
            continue
        gc.disable()  # trees of syntax are many objects, and a collection walks through all that lives: a fifth of the time
        with suppress(BaseException):  # a file that cannot be parsed is the worker's to report
            keep(share, config)
        os._exit(0)
    for child in children:
        os.waitpid(child, 0)


def files_of(config: pytest.Config) -> list[Path]:
    """The test files that a session collects."""
    return files_in([Path(word.partition("::")[0]) for word in config.args])


def files_in(places: Sequence[Path]) -> list[Path]:
    """The test files among some files and below some folders, each once."""
    found = (file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("test_*.py"))))
    return list(dict.fromkeys(file.absolute() for file in found))


def keep(files: Sequence[Path], config: pytest.Config) -> None:
    """Write what pytest would write next to each file, unless it is there."""
    from _pytest.assertion import rewrite

    state = config.stash[rewrite.assertstate_key]
    for file in files:
        folder = rewrite.get_cache_dir(file)
        kept = folder / (file.name[:-3] + rewrite.PYC_TAIL)
        if rewrite._read_pyc(file, kept) is None and rewrite.try_makedirs(folder):
            facts, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, facts, kept)
