"""The test files that are rewritten before workers start are those that pytest reads."""

from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from support.rewriting import files_in, keep


def test_what_is_kept_of_a_test_file_is_read_and_shows_the_values_of_a_failed_assert(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("def test_one():\n    x = 1\n    assert x == 2\n")
    assert files_in([tmp_path, file]) == [file]
    keep([file], pytestconfig)
    (kept,) = tmp_path.rglob("*.pyc")
    code = rewrite._read_pyc(file, kept)
    assert code is not None
    names: dict[str, object] = {}
    exec(code, names)
    with pytest.raises(AssertionError, match="assert 1 == 2"):
        names["test_one"]()
