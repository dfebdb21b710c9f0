"""What a method notes of itself, as numbers for its record."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping


class Notes:
    """Means over the requests of a stream of what a method noted; numbers and short lists of them, nothing else."""

    LONGEST, MOST = 1000, 64

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, list[float], bool]] = {}

    def add(self, stream: str, rows: int, notes: Mapping[str, object]) -> None:
        """Take up the notes of a request of `rows` rows; what is no finite number is passed over."""
        for name, value in notes.items():
            many = isinstance(value, list | tuple)
            entries = value if isinstance(value, list | tuple) else [value]
            values = [float(entry) for entry in entries if isinstance(entry, int | float)]
            key = re.sub(r"[^a-z0-9_ ]", "_", f"{stream} {name}".lower().strip())[:80]
            known = self._sums.get(key)
            fits = values and len(values) <= self.LONGEST and all(map(math.isfinite, values))
            if not fits or (known is None and len(self._sums) >= self.MOST) or (known and len(known[1]) != len(values)):
                continue
            total, sums, _ = known or (0.0, [0.0] * len(values), many)
            self._sums[key] = (total + rows, [a + rows * b for a, b in zip(sums, values, strict=True)], many)

    def means(self) -> dict[str, float | list[float]]:
        """Weighted by rows."""
        return {
            key: [value / total for value in sums] if many else sums[0] / total for key, (total, sums, many) in self._sums.items()
        }
