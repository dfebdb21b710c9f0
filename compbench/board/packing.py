"""The page's JSON in few characters: the names of like objects are written once, and so are repeated values.

The page's script restores the values (`unpacked` in board.js).  A list is written in one of five forms:

    [value, ...]                                              as it is
    {"$pool": [value, ...], "at": [0, 1, 0, ...]}             its distinct values, and which of them each item is
    {"$lists": [length, ...], "of": list}                     lists, joined to one list
    {"$columns": {name: list, ...}, "others": [[2, null]]}    objects with equal names: all their values of each name
    {"$columns": [list, ...], "others": []}                   lists of equal length: all first values, all second values, ...

`others` has the places and values of the items that are not such objects or lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any

from compbench.system.files import Json

CONSTANTS = {None: "null", True: "true", False: "false"}
MARK = "$"
"""The names of the forms begin with this character, and no name of the data may."""


def packed(value: Json) -> str:
    """The value as JSON in ASCII, with each list in the shortest form that was tried.

    The time grows exponentially with the depth of lists in lists; a page has at most five.

    Args:
        value: objects, lists and what else JSON has; a number must be finite.
    """
    if isinstance(value, dict):
        return _object({name: packed(own) for name, own in value.items()})
    if not isinstance(value, list):
        return _text(value)
    return min(_forms(value) if {dict, list} & set(map(type, value)) else _pooled([_text(item) for item in value]), key=len)


def _forms(values: Sequence[Json]) -> Iterator[str]:
    """The forms that a list can take.  Objects always become columns, because trying every form of them takes long."""
    shape, inner = _most_frequent_shape(values), None
    if shape:
        yield _columns(values, shape)
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) == len(values):
        joined = list(chain.from_iterable(lists))
        inner = _most_frequent_shape(joined)
        if inner:
            yield f'{{"$lists":{packed([len(value) for value in lists])},"of":{packed(joined)}}}'
    if not isinstance(shape, tuple) and not isinstance(inner, tuple):
        yield from _pooled([packed(value) for value in values])


def _pooled(texts: Sequence[str]) -> Iterator[str]:
    """A list as it is, and as a pool if that may be shorter."""
    yield _list(texts)
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    if len(places) < len(texts):
        yield f'{{"$pool":{_list(places)},"at":{_list(str(places[text]) for text in texts)}}}'


def _most_frequent_shape(values: Sequence[Json]) -> tuple[str, ...] | int | None:
    """The shape of more than half of the values; None if there is none."""
    shape, count = Counter(map(_shape, values)).most_common(1)[0] if values else (None, 0)
    return shape if 2 * count > len(values) else None


def _shape(value: Json) -> tuple[str, ...] | int | None:
    """The names of an object or the length of a list; None if it is empty or any other value."""
    if isinstance(value, dict):
        return tuple(value) or None
    return len(value) or None if isinstance(value, list) else None


def _columns(values: Sequence[Json], shape: tuple[str, ...] | int) -> str:
    """The items of one shape as columns, and all other items with their places."""
    like: list[Any] = [value for value in values if _shape(value) == shape]
    others = [[place, value] for place, value in enumerate(values) if _shape(value) != shape]
    if isinstance(shape, int):
        columns = _list(packed(list(column)) for column in zip(*like, strict=True))
    else:
        columns = _object({name: packed([value[name] for value in like]) for name in shape})
    return f'{{"$columns":{columns},"others":{packed(others)}}}'


def _text(value: Json) -> str:
    """The JSON of a text, a number, a truth value or null."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if value is None or isinstance(value, bool):
        return CONSTANTS[value]
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, float):
        raise TypeError(f"JSON has no {type(value).__name__}")
    if not isfinite(value):
        raise ValueError(f"JSON has no {value}")
    return _short(repr(value))


def _short(number: str) -> str:
    """The same number in fewer characters: 1 for 1.0, 22958e9 for 22958000000000.0."""
    text = number.removesuffix(".0")
    digits = text.rstrip("0")
    zeros = len(text) - len(digits)
    return f"{digits}e{zeros}" if zeros > 2 and digits.strip("-").isdigit() else text


def _object(parts: Mapping[str, str]) -> str:
    assert not any(name.startswith(MARK) for name in parts)
    return f"{{{','.join(f'{encode_basestring_ascii(name)}:{part}' for name, part in parts.items())}}}"


def _list(parts: Iterable[str]) -> str:
    return f"[{','.join(parts)}]"
