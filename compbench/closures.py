"""What a function carries with it to a silo: plain values may come along, tensors may not.

A function reaches tensors through its closure, its defaults, the arguments of a `functools.partial`, the object of a bound
method, and whatever containers and objects these hold.  Module-level names are not searched: they are the plugin's code.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType

from compbench.errors import Refused

DEPTH = 12
"""How deep objects inside objects are searched."""

PLAIN = (str, bytes, int, float, complex, bool, type(None), type, ModuleType)


def refuse_tensors(work: Callable[..., object]) -> None:
    """Raise Refused, naming the place, if a function that is to run on a silo carries tensors, modules or silos."""
    place = _first_tensor(work, getattr(work, "__name__", type(work).__name__), DEPTH, set())
    if place is not None:
        raise Refused(
            f"a function for the silos carries tensors with it: {place}. Hand over what others made by Federation.run(send=...) "
            "or gather=True, where it is metered; make untrained weights inside the function."
        )


def _first_tensor(value: object, place: str, depth: int, known: set[int]) -> str | None:
    """Where a tensor lies in a value, or None; "f -> closure 'peers' (Experts)", say."""
    if isinstance(value, PLAIN) or id(value) in known or depth < 0:
        return None
    known.add(id(value))
    if _is_tensor(value):
        return f"{place} ({type(value).__name__})"
    for name, inner in _inside(value):
        found = _first_tensor(inner, f"{place} -> {name}", depth - 1, known)
        if found is not None:
            return found
    return None


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
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{k}]", inner) for k, inner in enumerate(value))
    yield from ((f".{name}", inner) for name, inner in _attributes(value).items())


def _attributes(value: object) -> dict[str, object]:
    """An object's own attributes, in slots or not; descriptors of its class are not asked."""
    slots = [name for kind in type(value).__mro__ for name in _names(kind.__dict__.get("__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if not name.startswith("__") and hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _names(slots: str | tuple[str, ...]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
