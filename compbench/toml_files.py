"""TOML files that say what to run: a reader's own by path, or one that comes with compbench by name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from compbench.errors import CompbenchError, suggest

Content = TypeVar("Content", bound=BaseModel)


def shipped(folder: Path) -> list[str]:
    """Names of the files in a folder of compbench's own."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read(name: str, content: type[Content], *, folder: Path, option: str, kind: str) -> Content:
    """A file by path if the name ends in .toml, else the shipped one of that name.

    Args:
        name: path or name.
        content: what must be in it.
        folder: of the shipped ones.
        option: the option that asked, for messages.
        kind: what such a file is called in messages.

    Raises:
        CompbenchError: no such file, or what is wrong with it.
    """
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise CompbenchError(f"{option} {name}: there is no such file.")
        raise suggest(kind, name, shipped(folder))
    try:
        return content.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CompbenchError(f"{path} is not TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise CompbenchError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from error
