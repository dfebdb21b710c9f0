"""Families of tasks, and what each task would find here: official data and extra packages.  Imports no task."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

FAMILIES = {
    "compbench.tasks.image_holdout": "images",
    "compbench.tasks.shapes3d_composition": "images",
    "compbench.tasks.dsprites": "images",
    "compbench.tasks.concept_space": "images",
    "compbench.tasks.two_sprites": "bumps",
    "compbench.tasks.gaussian": "plane",
    "compbench.tasks.rooms": "rooms",
    "compbench.tasks.bump": "bumps",
    "compbench.tasks.rotation": "bumps",
    "compbench.tasks.blobs": "silos",
    "compbench.tasks.cmnist": "silos",
    "compbench.tasks.chest": "silos",
    "compbench.tasks.cmnist_diagonal": "images",
    "compbench.tasks.cmnist_not": "images",
    "compbench.tasks.planning": "planning",
}
"""Module of a task -> its family; a task of a plugin is in none."""

ORDER = ("images", "plane", "rooms", "bumps", "silos", "planning", "others")


class Needs(NamedTuple):
    """What tasks of a name want: official files in the data folder, and an extra of packages where there are none."""

    files: tuple[str, ...]
    extra: str = ""
    packages: tuple[str, ...] = ()
    always: bool = False


NEEDS = {
    "shapes3d": Needs(("3dshapes.h5",)),
    "mpi3d": Needs(("mpi3d_real.npz",)),
    "dsprites": Needs(("dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",)),
    "cmnist": Needs(("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), "digits", ("sklearn",)),
    "rotation": Needs(("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), "digits", ("sklearn",)),
    "chest": Needs(("chest/Data_Entry_2017.csv",)),
    "rooms": Needs(("rooms/empty", "rooms/couch")),
    "planning": Needs(("cube-single-play-v0.npz",), "planning", ("ogbench", "mujoco"), always=True),
}
"""By the first word of a task's name; other tasks are made of formulas and need neither."""


def family(module: str) -> str:
    """The family of a task by its module."""
    return FAMILIES.get(module, "others")


def has_official(task: str) -> bool:
    """Whether there are official files for a task at all."""
    return task.split("-")[0] in NEEDS


def data_here(task: str, folder: Path) -> str:
    """`official` or `embedded`, as `--source auto` would take; `exact` where a formula is the data."""
    needs = NEEDS.get(task.split("-")[0])
    if needs is None:
        return "exact"
    return "official" if all(_is_here(folder, name) for name in needs.files) else "embedded"


def missing_extra(task: str, folder: Path) -> str:
    """The extra whose packages a task would need here and that are not installed; "" if there is none."""
    needs = NEEDS.get(task.split("-")[0])
    if needs is None or (data_here(task, folder) == "official" and not needs.always):
        return ""
    return "" if all(find_spec(package) for package in needs.packages) else needs.extra


def _is_here(folder: Path, name: str) -> bool:
    return any((place / f"{name}{end}").exists() for place in (folder, folder / "mnist") for end in ("", ".gz"))
