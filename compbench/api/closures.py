"""What a function carries with it to a silo: plain values may come along, tensors may not.

A function reaches tensors through its closure, its defaults, the arguments of a `functools.partial`, the object of a bound
method, and whatever collections, objects and classes these hold.  Module-level names are not searched: they are the plugin's
code.  What an iterator will yield cannot be seen without using it up, so none may come along.  What compiled code alone can see,
such as a table of pandas or the arguments of an `operator.methodcaller`, is not found.
"""

from __future__ import annotations

import functools
import io
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType

from compbench.system.errors import Refused

DEPTH = 12
"""How deep objects inside objects are searched."""

PLAIN = (str, bytes, int, float, complex, bool, type(None))
"""Types of plain values; objects of their subclasses may have attributes, and are searched."""

NUMBERS_AND_TEXT = (str, bytes, bytearray, memoryview, range)
"""Collections of nothing else."""

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
    if type(value) in PLAIN or isinstance(value, ModuleType) or _is_named(value) or id(value) in known or depth < 0:
        return None
    known[id(value)] = value
    if _is_tensor(value) or (isinstance(value, UNSEEN) and not isinstance(value, io.IOBase)):
        return value, f"{place} ({type(value).__name__})"
    for name, inner in _inside(value):
        found = _first_refused(inner, f"{place} -> {name}", depth - 1, known)
        if found is not None:
            return found
    return None


def _is_named(value: object) -> bool:
    """Whether a value is a class that its module has under its name: the plugin's code, or a library's."""
    if not isinstance(value, type):
        return False
    found: object = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


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
        yield "defaults", value.__defaults__
        yield "defaults", value.__kwdefaults__
    elif isinstance(value, MethodType | BuiltinMethodType):
        yield "bound object", value.__self__
        yield "function", getattr(value, "__func__", None)
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield from ((f"argument {k}", inner) for k, inner in enumerate(value.args))
        yield from ((f"argument '{name}'", inner) for name, inner in value.keywords.items())
    elif isinstance(value, Mapping):
        yield from ((f"[{name!r}]", inner) for name, inner in value.items())
        yield from (("key", name) for name in value)
    elif isinstance(value, Collection) and not isinstance(value, NUMBERS_AND_TEXT):
        yield from ((f"[{k}]", inner) for k, inner in enumerate(value))
    elif isinstance(value, weakref.ReferenceType):
        yield "referent", value()
    elif isinstance(value, property | staticmethod | classmethod):
        yield from (("function", getattr(value, name, None)) for name in ("fget", "fset", "fdel", "__func__"))
    yield from ((f".{name}", inner) for name, inner in _attributes(value).items())
    yield from (("class", kind) for kind in (type(value), *(value.__bases__ if isinstance(value, type) else ())))


def _attributes(value: object) -> dict[str, object]:
    """An object's own attributes, in slots or not; descriptors of its class are not asked."""
    slots = [name for kind in type(value).__mro__ for name in _names(kind.__dict__.get("__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if not name.startswith("__") and hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _names(slots: str | tuple[str, ...]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
