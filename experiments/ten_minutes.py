"""From nothing to your own method on the board: run the commands of docs/quickstart.md, and nothing else, and measure the time.

    python experiments/ten_minutes.py              a clone, a new environment, every command
    python experiments/ten_minutes.py --installed  without the section "Install", if compbench is installed already

Exit status: 0 if the method is on the board within ten minutes.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "docs" / "quickstart.md"
MINUTES = 10.0


def commands(text: str, *, installed: bool) -> list[str]:
    """The shell blocks of the quickstart, in order; if `installed`, without those of the section Install."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    kept = [section for section in sections if not (installed and section.startswith("Install"))]
    return [
        line for section in kept for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()
    ]


def type_them(lines: list[str], folder: Path, home: Path) -> int:
    """Run the lines in one shell and print each before it runs; return the shell's exit status."""
    script = "set -e\n" + "\n".join(f"echo '$ {line}'\n{line}" for line in lines)
    environment = {**os.environ, "COMPBENCH_HOME": str(home), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(["bash", "-c", script], cwd=folder, env=environment, check=False).returncode


def entries(home: Path) -> set[str]:
    """The methods on the board of a home."""
    with (home / "board" / "board.csv").open() as file:
        return {row["method"] for row in csv.DictReader(file)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--installed", action="store_true", help="leave out the section Install")
    installed = parser.parse_args().installed
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ten-minutes-") as room:
        folder, home = Path(room) / "clone", Path(room) / "home"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(folder)], check=True)
        status = type_them(commands(QUICKSTART.read_text(), installed=installed), folder, home)
        minutes = (time.monotonic() - start) / 60
        there = status == 0 and "my-idea" in entries(home)
    print(f"exit status {status}, own method on the board: {'yes' if there else 'no'}, {minutes:.1f} of {MINUTES:g} minutes")
    return 0 if there and minutes <= MINUTES else 1


if __name__ == "__main__":
    sys.exit(main())
