"""The command that trains judges: what it says of a new judge, and of the stored one."""

import re
from pathlib import Path

import frozen_judges
import pytest

from compbench.tasks.glyphs import JUDGES


@pytest.mark.parametrize("known", [True, False])
def test_a_new_judge_is_measured_next_to_the_stored_one(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["frozen_judges.py", "glyph", "--steps", "1"])
    monkeypatch.setattr(frozen_judges, "REPEATS", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not known:
        monkeypatch.setattr("compbench.tasks.glyphs.JUDGES", {})
    frozen_judges.main()
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"new judge, real pictures: letter 0\.\d{4}, ", lines[0])
    fingerprint = re.search(r'"(dejavu.*)": ', lines[-1])
    assert fingerprint
    if known and fingerprint[1] in JUDGES:
        assert re.match(rf"stored judge {JUDGES[fingerprint[1]]}, real pictures: letter (1\.0|0\.99)", lines[2])
    else:
        assert lines[2].startswith("compbench has no judge for this data (letters of DejaVu")
