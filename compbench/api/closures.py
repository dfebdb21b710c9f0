"""What a function carries with it to a silo: plain values may come along, tensors may not.

A function's closure and defaults, the arguments of a `functools.partial` and the object of a bound method are searched, with the
collections and objects that these hold.  Module-level names and classes are not searched: they are the plugin's code.  What an
iterator will yield cannot be seen without using it up, so none may come along.  This finds what was carried by mistake: an author
who wants to hide a tensor finds a way, as in weights (`compbench.api.federation`).
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType

from compbench.system.errors import Refused

DEPTH = 6
"""How deep objects inside objects are searched; a problem's silos hold their tensors at depth 5."""

NOT_SEARCHED = (str, bytes, bytearray, memoryview, range, int, float, complex, type(None), type, ModuleType)
"""Numbers, text and code."""

UNSEEN = (Iterator, AsyncIterator, Coroutine)
"""What holds values that cannot be seen: iterators, generators and coroutines.  Files are iterators too, of bytes or text."""


def refuse_tensors(work: Callable[..., object]) -> None:
    """Raise Refused, naming the place, if a function that is to run on a silo carries tensors, modules, silos or iterators."""
    found = _first_refused(work, getattr(work, "__name__", type(work).__name__), DEPTH, {})
    if found is None:
        return
    value, place = found
    if not _is_tensor(value):
        raise Refused(
            f"a function for the silos carries an iterator with it: {place}. What it yields cannot be searched for tensors; "
            "make it inside the function, or hand over a list."
        )
    raise Refused(
        f"a function for the silos carries tensors with it: {place}. Hand over what others made by Federation.run(send=...) "
        "or gather=True, where it is metered; make untrained weights inside the function."
    )


def _first_refused(value: object, place: str, depth: int, known: dict[int, object]) -> tuple[object, str] | None:
    """A tensor or an iterator in a value and where it lies, or None; "f -> closure 'peers' (Experts)", say.

    `known` keeps what was searched alive, so that nothing else gets its id.
    """
    if isinstance(value, NOT_SEARCHED) or id(value) in known or depth < 0:
        return None
    known[id(value)] = value
    if _is_tensor(value) or (isinstance(value, UNSEEN) and not isinstance(value, io.IOBase)):
        return value, f"{place} ({type(value).__name__})"
    inside = (_first_refused(inner, f"{place} -> {name}", depth - 1, known) for name, inner in _inside(value))
    return next((found for found in inside if found is not None), None)


def _is_tensor(value: object) -> bool:
    """A tensor, a module (it exists to hold them), or an array of NumPy's."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kinds = [torch.Tensor, torch.nn.Module, torch.UntypedStorage] if torch else []
    return isinstance(value, tuple(kinds + ([numpy.ndarray] if numpy else [])))


def _inside(value: object) -> Iterator[tuple[str, object]]:
    """What a value holds, with a word for where."""
    if isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield f"closure '{name}'", cell.cell_contents
            except ValueError:  # not filled yet
                continue
        yield from (("defaults", value.__defaults__), ("defaults", value.__kwdefaults__))
    elif isinstance(value, MethodType | BuiltinMethodType):
        yield from (("bound object", value.__self__), ("function", getattr(value, "__func__", None)))
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield from ((f"argument {k}", inner) for k, inner in enumerate(value.args))
        yield from ((f"argument '{name}'", inner) for name, inner in value.keywords.items())
    elif isinstance(value, Mapping):
        yield from ((f"[{name!r}]", inner) for name, inner in value.items())
    elif isinstance(value, Collection):
        yield from ((f"[{k}]", inner) for k, inner in enumerate(value))
    slots = (name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ()) if not name.startswith("__"))
    yield from ((f".{name}", getattr(value, name, None)) for name in slots)
    yield from ((f".{name}", inner) for name, inner in getattr(value, "__dict__", {}).items())
