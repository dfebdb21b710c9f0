"""The data embedded in a board's page, restored as the page's script restores them (`unpacked` in board.js)."""

import json
import re
from itertools import islice
from typing import Any


def page_data(page: str) -> dict[str, Any]:
    """Everything that a page embeds."""
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return unpacked(json.loads(found))


def page_boards(page: str) -> list[dict[str, Any]]:
    """The tables that a page embeds; a row refers to its table's columns by their place."""
    return page_data(page)["boards"]


def unpacked(value: Any) -> Any:
    """The value that `compbench.board.packing.packed` wrote."""
    match value:
        case list():
            return [unpacked(item) for item in value]
        case {"$pool": pool, "at": at}:
            items = unpacked(pool)
            return [items[place] for place in at]
        case {"$lists": lengths, "of": joined}:
            items = iter(unpacked(joined))
            return [list(islice(items, length)) for length in unpacked(lengths)]
        case {"$columns": columns, "others": others}:
            return _with(_items(columns), unpacked(others))
        case dict():
            return {name: unpacked(own) for name, own in value.items()}
    return value


def _items(columns: dict[str, Any] | list[Any]) -> list[Any]:
    if isinstance(columns, list):
        return [list(item) for item in zip(*map(unpacked, columns), strict=True)]
    return [dict(zip(columns, item, strict=True)) for item in zip(*map(unpacked, columns.values()), strict=True)]


def _with(items: list[Any], others: list[Any]) -> list[Any]:
    for place, other in others:
        items.insert(place, other)
    return items
