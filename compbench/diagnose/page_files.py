"""Write figures, numbers and one page of a diagnosis.  The model comes from a plugin, so it is examined in a sandbox."""

from __future__ import annotations

import json
from pathlib import Path

from compbench.api.schemas import Record
from compbench.diagnose.page import page
from compbench.diagnose.summary import Summary
from compbench.notebook.stored_model import check_trained
from compbench.runner.isolated import answer_of, scratch
from compbench.store.records import MAX_PICTURE_BYTES
from compbench.system.errors import CompbenchError
from compbench.system.files import publish, write_atomically
from compbench.system.home import Home


def report(
    record: Record, path: Path, output: Path, *, home: Home, plugins: tuple[Path, ...], options: dict[str, str]
) -> Summary:
    """Write figures as PNG, all numbers as JSON (diagnostics.json) and one page (index.html).

    Args:
        record: record of a finished run; `path` is its file.
        output: folder for the files.
        home: home with the run's weights.
        plugins: files of methods that are not installed.
        options: the arguments `factors` and `derivative` of `summarise.summarised`.

    Raises:
        CompbenchError: the run has no weights here, or the model cannot be examined.
    """
    check_trained(record)
    weights = home.runs / record.identity / "model.safetensors"
    if not weights.is_file():
        if record.profile.parameters is None:
            raise CompbenchError(f"{record.name} has no weights: the model of '{record.spec.method}' is not a network.")
        raise CompbenchError(f"the weights of this run are not at {weights}; run it again here with --force.")
    with scratch() as folder:
        publish(path, folder / f"{record.name}.json")
        publish(weights, folder / weights.name)
        home.share_data(folder / "cache")
        files = [str(file.resolve()) for file in plugins]
        arguments = {**options, "folder": str(folder), "name": record.name, "home": str(home.root), "plugins": files}
        found = answer_of("compbench.diagnose.summarise:summarised", arguments, Summary, home=home, folder=folder)
        for name in found.figures:
            publish(folder / f"{name}.png", output / f"{name}.png", limit=MAX_PICTURE_BYTES)
    facts = found.model_dump(mode="json", exclude={"factors", "has_truth", "figures"})
    write_atomically(output / "diagnostics.json", (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())
    write_atomically(output / "index.html", page(record, found).encode())
    return found
