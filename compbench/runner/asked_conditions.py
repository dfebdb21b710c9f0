"""Count the conditions at which a sampler evaluates its networks, while the harness draws extra samples.

The calls that count are those of a model's outermost modules whose `forward` or `stacked` takes `condition` or `conditions`, and
those of a noise network's `at_sources`.  A network of sources (pem's energies) takes their positions in its `table` as `source`.
The functions are replaced only while the block runs, so no timed request is affected.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from compbench.system.condition_counts import ConditionCounts

FUNCTIONS = ("forward", "stacked", "at_sources")
"""Names of the functions by which samplers call a network."""
ASKED = ("condition", "conditions", "members", "source")
"""Names of the arguments with the requested conditions (..., F), or with positions of a network's sources in its `table`."""


@contextlib.contextmanager
def watched(model: object) -> Iterator[ConditionCounts]:
    """Count the conditions at which the networks of a model are evaluated while the block runs."""
    counts = ConditionCounts()
    exchanged = []
    for net in networks(model):
        for name in FUNCTIONS:
            place = _place(type(net), name)
            if place is not None and name not in net.__dict__:
                plain = getattr(net, name)
                setattr(net, name, partial(_called, plain, net, place, counts))
                exchanged.append((net, name))
    try:
        yield counts
    finally:
        for net, name in exchanged:
            delattr(net, name)


def networks(model: object) -> list[nn.Module]:
    """The outermost modules of a model, or of a tuple of modules, that take conditions."""
    if isinstance(model, tuple | list):
        parts = list(model)
    elif not isinstance(model, nn.Module):
        return []
    elif any(_place(type(model), name) is not None for name in FUNCTIONS):
        return [model]
    else:
        parts = list(model.children())
    return list(dict.fromkeys(net for part in parts for net in networks(part)))


def _place(kind: type, name: str) -> int | None:
    """The position of the argument with the requested conditions; None if a function has none."""
    function = getattr(kind, name, None)
    if function is None:
        return None
    names = list(inspect.signature(function).parameters)[1:]
    return next((names.index(asked) for asked in ASKED if asked in names), None)


_inside: list[int] = []
"""Networks whose call is in progress, so that calls inside of a network are not counted again."""


def _called(
    plain: Callable[..., object], net: nn.Module, place: int, counts: ConditionCounts, *arguments: Tensor, **options: object
) -> object:
    if id(net) in _inside:
        return plain(*arguments, **options)
    asked = arguments[place] if place < len(arguments) else next((options[name] for name in ASKED if name in options), None)
    table = getattr(net, "table", None)
    if isinstance(asked, list) and isinstance(table, Tensor):
        asked = table[asked][:, None].expand(-1, len(arguments[0]), -1)
    elif isinstance(asked, Tensor) and asked.ndim == 1 and isinstance(table, Tensor):
        asked = table[asked]
    if isinstance(asked, Tensor) and not torch.is_floating_point(asked) and not _is_batched(asked):
        counts.add(asked)
    _inside.append(id(net))
    try:
        return plain(*arguments, **options)
    finally:
        _inside.pop()


def _is_batched(condition: Tensor) -> bool:
    """Whether torch.func vectorises over the conditions, whose values then cannot be counted."""
    return bool(torch._C._functorch.is_batchedtensor(condition))
