"""Facts about a checkout's code for which nothing is run: digests, versions, and their source files.

    python -P code_probe.py ORDER      ORDER: a file of JSON that names the file for the answer

`verify --equal` runs this file with the interpreters of two commits, so it uses only what `compbench` has at both.  If an order
has another checkout's `facts`, that checkout's code is hashed by this checkout's rules.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an older commit's compbench lacks these types
    from compbench.api.interfaces import Method, Metric, Task
    from compbench.gate.proof import CodeFacts
    from compbench.registry.registry import Entry

DEVICES = ("cpu", "gpu")
"""Classes of devices; all GPUs run the same code."""
KINDS = ("methods", "tasks", "metrics")


ours = runpy.run_path(str(Path(__file__).with_name("probe.py")))["ours"]
"""A function that imports a module of the interpreter's own compbench, whatever its layout (`probe.ours`)."""


class Foreign:
    """The entries of another checkout: a registry that loads nothing."""

    def __init__(self, entries: dict[str, list[list[str]]]) -> None:
        entry = ours("registry").Entry
        self._entries: dict[tuple[str, str], Entry] = {
            (kind, words[1]): entry(*words[:5], words[5] and Path(words[5]), *words[6:])
            for kind, found in entries.items()
            for words in found
        }

    def entry(self, kind: str, name: str) -> Entry:
        return self._entries[kind, name]

    def names(self, kind: str) -> list[str]:
        return [name for own, name in self._entries if own == kind]


def facts_here() -> CodeFacts:
    """This checkout's root, entries, versions, the metrics of each task, and which method works on which task.

    Entries that cannot be loaded are left out.
    """
    import compbench

    registry, resolve = ours("registry").Registry(), ours("resolve")
    values: dict[str, dict[str, Method | Task | Metric]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for entry in registry.entries(kind):
            loaded = registry.attempt(entry)
            if loaded.state == "ok":
                values[kind][entry.name] = loaded.value
    entries = {
        kind: [[str(word) if isinstance(word, Path) else word for word in entry] for entry in registry.entries(kind)]
        for kind in KINDS
    }
    root = str(Path(compbench.__file__).parents[1])
    versions = {kind: {name: value.version for name, value in found.items()} for kind, found in values.items()}
    scoring = {name: sorted(resolve.metrics_of(task, registry)) for name, task in values["tasks"].items()}
    works = [
        f"{method}/{task}"
        for method, one in values["methods"].items()
        for task, other in values["tasks"].items()
        if not resolve.why_not(one, other)
    ]
    return {"root": root, "entries": entries, "versions": versions, "metrics": scoring, "works": works}


def codes(facts: CodeFacts, *, foreign: bool) -> dict[str, list[object]]:
    """Digest and parts of each "method/task/device" by this checkout's rules, for its own code or for the checkout of `facts`."""
    meaning = ours("meaning")
    registry = Foreign(facts["entries"]) if foreign else ours("registry").Registry()
    also: dict[str, object] = {"root": Path(facts["root"])} if foreign else {}
    kept: dict[object, object] = {}
    found = {}
    for task, metrics in facts["metrics"].items():
        for method in ["", *facts["versions"]["methods"]]:
            for device in DEVICES:
                known: dict[str, object] = {"metrics": metrics, "device_class": device, "kept": kept, **also}
                code = meaning.code_of(registry, method=method, task=task, **known)
                found[f"{method}/{task}/{device}"] = [code.digest, code.parts]
    return found


def gpu_parts(facts: CodeFacts) -> dict[str, str]:
    """The hash of the definitions with code that only GPUs run, for each "method/task"."""
    meaning, registry = ours("meaning"), Foreign(facts["entries"])
    kept: dict[object, object] = {}
    found = {}
    for task, metrics in facts["metrics"].items():
        for method in facts["versions"]["methods"]:
            roots = [("method", registry.entry("methods", method)), ("task", registry.entry("tasks", task))]
            roots += [("metrics", registry.entry("metrics", name)) for name in metrics if name in registry.names("metrics")]
            found[f"{method}/{task}"] = meaning.for_gpus(*roots, kept=kept, root=Path(facts["root"]))  # as in the first commit
    return found


def main(path: str) -> None:
    """Read the order in a file, and write the answer to the file that the order names."""
    order = json.loads(Path(path).read_text())
    facts = order.get("facts") or facts_here()
    found = gpu_parts(facts) if order["kind"] == "gpu" else codes(facts, foreign="facts" in order)
    Path(order["answer"]).write_text(json.dumps({"facts": facts, "found": found}))
    print("\n{}")


if __name__ == "__main__":
    main(sys.argv[1])
