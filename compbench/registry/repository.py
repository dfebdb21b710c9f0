"""Which repository on GitHub compbench was installed from: workflows of a new plugin get compbench from there.

pip install -e CLONE                           the clone's remote "origin"
pip install git+https://github.com/O/N         the address that pip recorded (direct_url.json, PEP 610)
pip install compbench                          the project's URL in the package's metadata
"""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

from compbench.registry.checkout import git
from compbench.system.errors import CompbenchError

GITHUB = re.compile(r"(?:^|[/@.])github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")
"""An address of a repository, by https or ssh."""


def repository() -> str:
    """OWNER/NAME on GitHub of the installed compbench; "" if it is not known."""
    try:
        found = distribution("compbench")
    except PackageNotFoundError:
        return ""
    url = str(json.loads(found.read_text("direct_url.json") or "{}").get("url", ""))
    addresses = [_origin(url) if url.startswith("file:") else url]
    addresses += [line.partition(",")[2].strip() for line in found.metadata.get_all("Project-URL") or ()]
    return next((name for name in map(owner_and_name, addresses) if name), "")


def owner_and_name(address: str) -> str:
    """OWNER/NAME of an address on GitHub; "" for any other address."""
    found = GITHUB.search(address.removesuffix("/"))
    return found[1] if found else ""


def _origin(url: str) -> str:
    """The address from which the clone at a file's URL was made; "" if the folder is not a clone."""
    try:
        return git(Path(unquote(urlparse(url).path)), "remote", "get-url", "origin").decode(errors="replace").strip()
    except CompbenchError:
        return ""
