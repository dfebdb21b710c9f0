"""Check what a function carries with it to a silo: plain values are allowed, tensors are not.

A function's closure and defaults, the arguments of a `functools.partial` and the object of a bound method are searched, with the
collections and objects inside them.  Module-level names and classes are not searched, because they are the plugin's code.  An
iterator cannot be searched without using it up, so iterators are not allowed.  The check finds mistakes; it cannot stop an author
who wants to hide a tensor, for example in weights (`compbench.api.federation`).
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType

from compbench.system.errors import Refused

DEPTH = 6
"""Largest depth to which nested objects are searched; a problem's silos hold their tensors at depth 5."""

NOT_SEARCHED = (str, bytes, bytearray, memoryview, range, int, float, complex, type(None), type, ModuleType)
"""Types whose values are not searched: numbers, text and code."""

UNSEEN = (Iterator, AsyncIterator, Coroutine)
"""Types whose values cannot be searched: iterators, generators and coroutines.  Files are iterators too, of bytes or text."""


def refuse_tensors(work: Callable[..., object]) -> None:
    """Raise Refused, naming the place, if a function for the silos carries tensors, modules, silos or iterators."""
    found = _first_refused(work, getattr(work, "__name__", type(work).__name__), DEPTH, {})
    if found is None:
        return
    value, place = found
    if not _is_tensor(value):
        raise Refused(
            f"a function for the silos carries an iterator with it: {place}. Its values cannot be searched for tensors; "
            "make it inside the function, or hand over a list."
        )
    raise Refused(
        f"a function for the silos carries tensors with it: {place}. Pass other parties' results by Federation.run(send=...) "
        "or gather=True, which are metered; make untrained weights inside the function."
    )


def _first_refused(value: object, place: str, depth: int, known: dict[int, object]) -> tuple[object, str] | None:
    """The first tensor or iterator in a value with its place, such as "f -> closure 'peers' (Experts)"; None without any.

    `known` keeps searched objects alive, so that no other object gets the same id.
    """
    if isinstance(value, NOT_SEARCHED) or id(value) in known or depth < 0:
        return None
    known[id(value)] = value
    if _is_tensor(value) or (isinstance(value, UNSEEN) and not isinstance(value, io.IOBase)):
        return value, f"{place} ({type(value).__name__})"
    inside = (_first_refused(inner, f"{place} -> {name}", depth - 1, known) for name, inner in _inside(value))
    return next((found for found in inside if found is not None), None)


def _is_tensor(value: object) -> bool:
    """Whether a value is a tensor, a module (which holds tensors), or a NumPy array."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kinds = [torch.Tensor, torch.nn.Module, torch.UntypedStorage] if torch else []
    return isinstance(value, tuple(kinds + ([numpy.ndarray] if numpy else [])))


def _inside(value: object) -> Iterator[tuple[str, object]]:
    """The objects inside a value, each with its place in words."""
    if isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield f"closure '{name}'", cell.cell_contents
            except ValueError:  # an empty closure cell
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
