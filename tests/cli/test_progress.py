"""Whatever stages and numbers a child reports, the parent's bars are drawn and nothing of them is markup or an escape."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compbench.api.schemas import RunRequest
from compbench.cli import output
from compbench.runner.channel import Frame, Garbled
from compbench.runner.messages import Progress, parsed

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
STAGES = st.text(max_size=150) | st.sampled_from(
    ["[/b]", "[bold", "[link=file:///etc/passwd]x", "\x1b[2J\x1b]0;mine\x07", "{task}", "\ud800", "a\nb", "", "done", "=" * 900]
)
NUMBERS = st.integers() | st.sampled_from([0, -1, 10**18, 2**63, 10**400]) | st.floats() | st.none() | st.text(max_size=3)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def drawn(reports: Sequence[tuple[str, object, object]], title: str = "run") -> str:
    """What a terminal gets of a run's progress."""
    with contextlib.redirect_stderr(Terminal()) as terminal, output.listener(quiet=False, title=title) as report:
        for message in [received(*one) for one in reports]:
            if message is not None:
                report(message.stage, message.done, message.total)
    return terminal.getvalue()


def received(stage: str, done: object, total: object) -> Progress | None:
    """The message that arrives; none where a child that sends it is ended."""
    try:
        message = parsed(Frame({"kind": "Progress", "stage": stage, "done": done, "total": total}, b""))
    except Garbled:
        return None
    assert isinstance(message, Progress)
    return message


@QUICK
@given(st.lists(st.tuples(STAGES, NUMBERS, NUMBERS), max_size=6))
def test_any_progress_of_a_run_is_drawn(reports: list[tuple[str, object, object]]) -> None:
    shown = drawn(reports, "[/b] run")
    assert "[/b] run" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "\x1b]0;" not in shown


@QUICK
@given(st.lists(st.tuples(st.integers(0, 3), STAGES, NUMBERS, NUMBERS), max_size=6))
def test_any_progress_of_a_sweep_is_drawn(reports: list[tuple[int, str, object, object]]) -> None:
    request = RunRequest(task="[/red]", method="mono", home="/nowhere")
    with contextlib.redirect_stderr(Terminal()) as terminal, output.sweep_listener(3, quiet=False) as report:
        for slot, *one in reports:
            if (message := received(*one)) is not None:
                report(slot, request, message.stage, message.done, message.total)
    assert "\x1b]0;" not in terminal.getvalue()


def test_a_stage_is_text_and_not_markup() -> None:
    assert "[/b] [red]fit" in drawn([("[/b] [red]fit", 1, 2)])


def test_a_thousand_stages_are_a_few_bars() -> None:
    assert len(drawn([(f"stage {number}", 1, 2) for number in range(1000)])) < 200_000


def test_without_a_terminal_a_run_says_its_plan_at_once_a_line_a_stage_and_one_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("compbench.cli.output.time.monotonic", lambda: clock[0])
    with contextlib.redirect_stderr(io.StringIO()) as said, output.listener(quiet=False, title="mono", plan="fit") as report:
        assert said.getvalue() == "mono\nplan  fit\n"
        reports = [(1, "fit", 1), (2, "fit", 2), (70, "fit", 70), (90, "fit", 90), (101, "sample a", 5), (102, "sample b", 5)]
        for clock[0], stage, done in reports:
            report(stage, done, 100)
    assert said.getvalue().splitlines()[2:] == [
        "1.0 s  fit 1/100",
        "1.2 min  fit 70/100, about 30.0 s left of the fit",
        "1.7 min  sample a 5/100",
    ]


def test_without_a_terminal_a_line_says_what_is_left_of_the_run_where_the_plan_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("compbench.cli.output.time.monotonic", lambda: clock[0])
    with contextlib.redirect_stderr(io.StringIO()) as said, output.listener(quiet=False, title="mono", seconds=90.0) as report:
        for clock[0], done in [(10, 10), (75, 60), (136, 90)]:
            report("fit", done, 100)
    assert said.getvalue().splitlines()[1:] == [
        "10.0 s  fit 10/100, about 1.3 min left of the run by the plan",
        "1.2 min  fit 60/100, about 15.0 s left of the run by the plan",
        "2.3 min  fit 90/100, about 15.8 s left of the fit",
    ]


@pytest.mark.parametrize("terminal", [Terminal, io.StringIO])
def test_the_seen_split_judge_is_explained_once(terminal: type[io.StringIO]) -> None:
    with contextlib.redirect_stderr(terminal()) as said, output.listener(quiet=False, title="mono") as report:
        for done in range(3):
            report("seen-split judge", done, 3)
    assert said.getvalue().count("a second classifier that never ranks, trained on seen combinations alone") == 1


def test_a_bar_says_what_is_left_of_what() -> None:
    with contextlib.redirect_stderr(Terminal()) as said, output.listener(quiet=False, title="mono", seconds=90.0) as report:
        report("fit", 1, 2)
    assert "left of the run" in said.getvalue()
    assert "left of the stage" in said.getvalue()


def test_quiet_is_silent_without_a_terminal_too() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as said, output.listener(quiet=True, title="mono", plan="fit") as report:
        report("fit", 1, 2)
    assert said.getvalue() == ""
