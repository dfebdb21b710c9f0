"""The table of CPU seconds: judges in full, fits of fewer steps scaled up, and what is over three minutes marked."""

from quick_seconds import Row, rows, table
from support.sample_records import record

from compbench.api.schemas import Profile, Stage


def run(method: str, steps: int, **cpu_seconds: float):
    stages = tuple(Stage(name=name, seconds=1.0, cpu_seconds=value) for name, value in cpu_seconds.items())
    facts = {"task": "concept-space", "preset": "quick", "method": method, "budget": {"train_steps": steps}}
    return record(**facts, more={"profile": Profile(stages=stages)})


def test_judges_count_in_full_and_a_short_fit_is_scaled() -> None:
    runs = [run("mono", 100, prepare=40, fit=5, sample=3, score=1, data=1), run("factored", 800, prepare=0, fit=30, sample=2)]
    assert rows(runs, {"concept-space": 800}) == [
        Row("concept-space", "factored", 40, 30, 2, 0),
        Row("concept-space", "mono", 40, 40, 5, 100),
    ]
    assert rows(runs, {"dsprites-light": 800}) == []


def test_the_table_marks_what_takes_over_three_minutes_on_two_cores() -> None:
    lines = table([Row("a", "m", 10, 290, 6, 0), Row("b", "m", 10, 290, 7, 50)]).splitlines()
    assert lines[2:] == ["| a, `m` | 10 | 290 | 6 | 180 |", "| b, `m` | 10 | 290 (from 50 steps) | 7 | 181 **over** |"]
