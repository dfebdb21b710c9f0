"""The container of docs/security.md, as it stands there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
RUN = "compbench run --method naive-sde --task gmm-ood --preset smoke"
INSIDE = """sh -c '
python -c "import compbench_methods" && touch own || echo broken
touch "$HOME/mine" /usr/mine /opt/mine 2>/dev/null && echo wrote
[ -e "$USERS/secret" ] && echo "read the home"
[ -n "$TOKEN" ] && echo "has a token"
[ "$(ls -d /proc/[0-9]* | wc -l)" -lt 10 ] || echo "sees processes"
[ "$(cat /proc/net/dev | grep -c :)" -le 1 ] || echo "has a network"'"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_the_container_of_the_security_page_keeps_what_it_says(tmp_path: Path) -> None:
    block = next(part for part in DOCUMENT.read_text().split("```bash\n") if "bwrap" in part).split("```")[0]
    assert block.count(RUN) == 1
    (tmp_path / "secret").write_text("secret")
    inside = INSIDE.replace("$USERS", str(tmp_path))
    env = {**os.environ, "HOME": str(tmp_path), "TOKEN": "secret", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", block.replace(RUN, inside)], env=env, capture_output=True, text=True, timeout=60)
    if "Operation not permitted" in done.stderr or "No permissions to create" in done.stderr:
        pytest.skip("this machine lets no one make a namespace")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in (tmp_path / "boxed").iterdir()] == ["own"]
