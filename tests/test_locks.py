import threading
import time
from pathlib import Path

from compbench.system.files import held


def test_who_comes_second_waits_and_finds_it_made(tmp_path: Path) -> None:
    path, made = tmp_path / "deep" / "thing.safetensors", []

    def want() -> None:
        with held(path):
            if not path.exists():
                time.sleep(0.1)
                path.write_text("made")
                made.append(1)

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
