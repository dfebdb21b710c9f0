"""Figure 3 of Decentralized Compositional Flow Matching from records: where each method puts the blob that no silo has.

    compbench sweep --file silos-figure3
    python experiments/silos_figure3.py [--records FOLDER] [--output figure3.png]

The script prints the share of samples within 3 standard deviations of the missing mode (mean over seeds with 95 % interval), and
tiles the pictures of seed 0: one row per split, one column per method; the bold ring is the missing mode.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from compbench.api.schemas import Record
from compbench.board.statistics import interval, mean
from compbench.store.records import Store
from compbench.system.home import Home

TASKS = ("blobs-iid", "blobs-noniid")
ROWS = {
    "fedflow": ("fedflow", {"local_ci": False}),
    "fedflow+L": ("fedflow", {"local_ci": True}),
    "ddm": ("ddm", {"local_ci": False}),
    "ddm+L": ("ddm", {"local_ci": True}),
    "dfd": ("dfd", {"local_ci": False}),
    "dfd+L": ("dfd", {"local_ci": True}),
    "dcfm-a": ("dcfm-a", {}),
    "dcfm-b": ("dcfm-b", {}),
    "pooled": ("centralised", {"coind": False}),
    "pooled, CoInD": ("centralised", {"coind": True}),
    "mono": ("mono", {}),
    "factored": ("factored", {}),
    "slice-cfg": ("slice-cfg", {}),
    "fkc": ("fkc", {}),
}
SCORE = "heldout_mode_share"


def row_of(record: Record) -> str | None:
    """The row that a finished record at this task's own budget belongs to."""
    for name, (method, settings) in ROWS.items():
        if record.spec.method == method and all(record.spec.settings.get(key) == value for key, value in settings.items()):
            return name
    return None


def chosen(store: Store, preset: str) -> dict[tuple[str, str], dict[int, Record]]:
    """Records by (task, row) and seed; the latest attempt counts."""
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for record in sorted(store.read()[0], key=lambda record: record.started):
        wanted = record.status == "ok" and record.spec.task in TASKS and record.spec.preset == preset
        if wanted and not record.spec.budget_changed and (name := row_of(record)):
            found.setdefault((record.spec.task, name), {})[record.spec.seed] = record
    return found


def share(records: dict[int, Record]) -> str:
    """Mean share of the missing mode and its interval."""
    values = [score.value for record in records.values() if (score := record.score(SCORE)) and score.value is not None]
    spread = interval(values)
    return f"{mean(values):.3f}" + (f" [{spread.low:.3f}, {spread.high:.3f}]" if spread else "") + f" n={len(values)}"


def draw(store: Store, found: dict[tuple[str, str], dict[int, Record]], output: Path) -> None:
    """Tile the pictures of each row's first seed."""
    from matplotlib import pyplot
    from PIL import Image

    names = [name for name in ROWS if any((task, name) in found for task in TASKS)]
    figure, axes = pyplot.subplots(len(TASKS), len(names), figsize=(1.5 * len(names), 3.6), squeeze=False)
    for i, task in enumerate(TASKS):
        for j, name in enumerate(names):
            axis = axes[i][j]
            axis.set_xticks([])
            axis.set_yticks([])
            if records := found.get((task, name)):
                picture = store.picture(records[min(records)])
                if picture:
                    axis.imshow(Image.open(io.BytesIO(picture)))
                axis.set_xlabel(share(records).split(" ")[0], fontsize=8)
            if i == 0:
                axis.set_title(name, fontsize=8)
            if j == 0:
                axis.set_ylabel(task, fontsize=8)
    figure.tight_layout(pad=0.3)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=90)
    Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(output, optimize=True)  # a quarter of the bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Home.of_user().records)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    store = Store(asked.records)
    found = chosen(store, asked.preset)
    if not found:
        parser.error(f"no finished records of {', '.join(TASKS)} at {asked.preset} in {asked.records}; run the sweep first.")
    print("| method | " + " | ".join(TASKS) + " |\n|" + "---|" * (1 + len(TASKS)))
    for name in ROWS:
        print(f"| {name} | " + " | ".join(share(found[task, name]) if (task, name) in found else "-" for task in TASKS) + " |")
    if asked.output:
        draw(store, found, asked.output)


if __name__ == "__main__":
    main()
