"""Planning tasks: the lattice, who has which moves, the replay of recorded segments, failures, and the referee's sums."""

from pathlib import Path

import numpy
import pytest
import torch

from compbench.api.interfaces import Source, TaskContext
from compbench.data.cube_segments import CUBE, NUM_STATE_CHANNELS, Segments, cells_of, normalised, segments
from compbench.data.cube_trajectories import Trajectories
from compbench.data.process_pool import Failed, Workers
from compbench.metrics.plan_rates import compbench_metrics
from compbench.system.errors import CompbenchError
from compbench.tasks import planning, planning_evaluation
from compbench.tasks.planning import BUDGETS, make_task
from compbench.tasks.planning_evaluation import NUM_GROUPS, PlanningEvaluation
from compbench.tasks.planning_execution import Outcome, Trial, action, carry_out, start_state, targets
from compbench.tasks.planning_picture import panels
from compbench.tasks.planning_recorded import RecordedPlans
from compbench.tasks.planning_rules import HOLDOUT, OWNERS, SPACE, TRIALS, Settings, still_frames


def context(folder: Path, seed: int = 0) -> TaskContext:
    return TaskContext(
        device=torch.device("cpu"),
        precision="fp32",
        seed=seed,
        cache=folder,
        data=folder,
        source=Source("embedded", "test", "test"),
        preset="smoke",
        metrics={metric.name: metric for metric in compbench_metrics()},
    )


def judge(found: Segments, settings: Settings, ctx: TaskContext, *, frames: int = 1) -> PlanningEvaluation:
    return PlanningEvaluation(found, settings, HOLDOUT, ctx, trials=TRIALS["smoke"], frames=frames)


def invented(each: int = 3) -> Segments:
    """`each` plans of every pair: the cube jumps from one quadrant to another half-way."""
    cells = numpy.array([(source, destination) for source in range(4) for destination in range(4) for _ in range(each)])
    plans = numpy.zeros((len(cells), 17, 24), numpy.float32)
    plans[:, CUBE.start + 2] = 0.02
    for half, quadrant in ((slice(0, 12), cells[:, 0]), (slice(12, 24), cells[:, 1])):
        plans[:, CUBE.start, half] = numpy.where(quadrant >= 2, 0.5, 0.35)[:, None]
        plans[:, CUBE.start + 1, half] = numpy.where(quadrant % 2 == 1, 0.1, -0.1)[:, None]
    assert (cells_of(plans) == cells).all()
    return Segments(plans, cells)


@pytest.fixture
def family(tmp_path: Path, monkeypatch):
    """family(split, segments) without the simulator."""
    from compbench.data import cube_segments, cube_trajectories

    def make(split: str, found: Segments) -> planning.OpenPlanning:
        monkeypatch.setattr(cube_trajectories, "load", lambda *args, **kwargs: None)
        monkeypatch.setattr(cube_segments, "segments", lambda *args, **kwargs: found)
        return planning.OpenPlanning(split, Settings(), context(tmp_path))

    return make


def test_the_holdout_is_the_four_diagonals() -> None:
    names = [tuple(SPACE.factors[k].values[value] for k, value in enumerate(cell)) for cell in HOLDOUT.cells]
    assert sorted(names) == [("BL", "TR"), ("BR", "TL"), ("TL", "BR"), ("TR", "BL")]
    assert sorted(OWNERS) == sorted(HOLDOUT.seen_cells)


def test_noniid_silos_have_the_moves_of_figure_8_and_iid_ones_have_all(family) -> None:
    problem = family("noniid", invented()).problem(BUDGETS["smoke"])
    first, second = ({tuple(cell) for cell in silo.condition.tolist()} for silo in problem.federation._silos)
    assert {(0, 1), (1, 0), (1, 3), (3, 1)} <= first
    assert {(0, 2), (2, 0), (2, 3), (3, 2)} <= second
    assert first & second == {(0, 0), (3, 3)}
    assert first | second == set(HOLDOUT.seen_cells)
    both = family("iid", invented(8)).problem(BUDGETS["smoke"]).federation._silos
    assert all(len({tuple(cell) for cell in silo.condition.tolist()}) > 8 for silo in both)
    assert sum(silo.size for silo in both) == 12 * 8


def test_a_quadrant_that_no_silo_has_is_named(family) -> None:
    found = invented()
    without = found.cells[:, 0] != 1
    with pytest.raises(CompbenchError, match="no silo has 'source' = TR"):
        family("iid", Segments(found.plans[without], found.cells[without])).problem(BUDGETS["smoke"])


def test_configure_changes_the_number_of_frames() -> None:
    task = make_task("iid").configure(Settings(stride=2))
    assert task.event.shape == (17, 48)
    assert make_task("iid").event.shape == (17, 24)


def test_targets_are_linear_between_frames_and_action_leads_to_them() -> None:
    plan = numpy.zeros((17, 3))
    plan[11], plan[14] = (0.3, 0.4, 0.6), 1.0
    commands = targets(plan, 2)
    assert commands[:, 0].tolist() == pytest.approx([0.3, 0.35, 0.4, 0.5, 0.6])
    info = {"proprio/effector_pos": numpy.array([0.3, 0.0, 0.1]), "proprio/effector_yaw": [3.1], "proprio/gripper_opening": [0.2]}
    command = numpy.array([0.325, 0.0, 0.0, numpy.cos(-3.1), numpy.sin(-3.1), 1.5])
    assert action(command, info) == pytest.approx([0.5, 0.0, -1.0, (2 * numpy.pi - 6.2) / 0.3, 0.8])  # the short way round


def recorded(played: Trajectories, count: int) -> list[numpy.ndarray]:
    return list(segments(played, stride=4, episodes=9).plans[:count])


def trial(plan: numpy.ndarray, seed: int | None = None) -> Trial:
    return Trial(plan, goal=numpy.array([*plan[CUBE, -1][:2], 0.02]), start=plan[CUBE, 0], seed=seed, stride=4)


@pytest.fixture(scope="module")
def carried(played: Trajectories) -> list[object]:
    """One whose inverse kinematics cannot be had, which takes its process with it, and a recorded segment in a new one."""
    whole = trial(recorded(played, 1)[0])
    with Workers(carry_out, 1) as workers:
        return workers.map([whole._replace(plan=numpy.full_like(whole.plan, numpy.nan)), whole])


@pytest.fixture(scope="module")
def replayed(played: Trajectories) -> list[Outcome]:
    """A recorded segment, carried out in this process."""
    return [carry_out(trial(plan)) for plan in recorded(played, 1)]


def test_a_recorded_segment_succeeds_when_it_is_replayed(replayed) -> None:
    assert all(outcome.succeeded and outcome.lifted for outcome in replayed)


@pytest.mark.slow
def test_a_failure_of_the_simulator_costs_its_own_trial_only(carried) -> None:
    assert [type(outcome) for outcome in carried] == [Failed, Outcome]


@pytest.mark.slow
def test_executions_are_the_same_bits_in_another_process(carried, replayed) -> None:
    assert replayed[0].distance == carried[1].distance
    assert numpy.array_equal(replayed[0].path, carried[1].path)


def test_start_state_is_what_the_reset_leads_to(played: Trajectories) -> None:
    asked = trial(recorded(played, 1)[0], seed=5)
    state = start_state(asked)
    assert state.shape == (NUM_STATE_CHANNELS,)
    assert numpy.abs(state[CUBE][:2] - asked.start[:2]).max() <= 0.0101
    assert numpy.array_equal(state, start_state(asked))
    assert not numpy.array_equal(state, start_state(asked._replace(seed=6)))


class Perfect:
    """A contestant that draws recorded plans, and keeps what is known."""

    def __init__(self, found: Segments) -> None:
        self.found, self.given = found, []

    def __call__(self, condition, *, stream, known=None, known_mask=None):
        rows = [int(numpy.flatnonzero((self.found.cells == cell).all(1))[0]) for cell in condition.numpy()]
        plans = torch.from_numpy(normalised(self.found.plans[rows])).float()
        if known is not None:
            self.given.append((stream, known_mask))
            plans = torch.where(known_mask, known, plans)
        return plans


def fake(order: Trial) -> object:
    """The simulator, replaced: everything works but moves within a quadrant, whose process fails."""
    if order.plan is None:
        return numpy.zeros(NUM_STATE_CHANNELS, numpy.float32)
    if numpy.linalg.norm(order.start - order.goal) < 0.01:
        return Failed("FloatingPointError: the simulation diverged")
    return Outcome(0.01, True, True, order.plan[CUBE].T)


class Here:
    """As `Workers`, in this process."""

    def __init__(self, function, count) -> None:
        self.function = function

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None: ...
    def map(self, items, *, progress=lambda done, total: None):
        return [self.function(item) for item in items]


class OneProcess(Here):
    def __init__(self, function, count) -> None:
        self.function = fake


def test_the_referee_counts_what_is_feasible_and_what_succeeds(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(planning_evaluation, "Workers", OneProcess)
    found = invented()
    sampler = Perfect(found)
    referee = judge(found, Settings(), context(tmp_path))
    result = referee.evaluate(sampler)
    scores = {score.name: score for score in result.scores}
    assert scores["heldout_success_rate"].value == 100
    assert scores["heldout_success_rate"].primary
    assert scores["heldout_success_spread"].value == 0
    cells = [HOLDOUT.seen_cells[place] for place in range(TRIALS["smoke"])]
    share = 100 * sum(source != destination for source, destination in cells) / len(cells)
    assert scores["seen_success_rate"].value == pytest.approx(share)
    assert scores["seen_trivial_rate"].value == pytest.approx(100 - share)
    assert scores["seen_feasibility"].value == 100
    assert "failed in the simulator" in scores["seen_success_rate"].reason
    assert scores["heldout_execution_ceiling"].value == scores["heldout_success_rate"].ceiling == 100
    assert [name for name, score in scores.items() if score.primary] == ["heldout_success_rate"]
    assert result.pictures["samples"].ndim == 3


@pytest.mark.parametrize("frames", [1, 4])
def test_the_ranked_plan_is_given_the_cube_and_the_goal_and_the_second_score_the_arm_too(tmp_path, monkeypatch, frames) -> None:
    monkeypatch.setattr(planning_evaluation, "Workers", OneProcess)
    found = invented()
    sampler = Perfect(found)
    judge(found, Settings(), context(tmp_path), frames=frames).evaluate(sampler)
    given = dict(sampler.given)
    assert set(given) == {f"{split}{kind} inpaint" for split in ("heldout", "seen") for kind in ("", "_whole_state")}
    trials = NUM_GROUPS * TRIALS["smoke"]
    for stream, mask in given.items():
        first = slice(0, NUM_STATE_CHANNELS) if "whole_state" in stream else CUBE
        assert mask[:, first, 0].all()
        assert mask[:, CUBE, -1].all()
        assert mask[:, CUBE, :frames].all()
        assert int(mask.sum()) == trials * (first.stop - first.start + 3 * frames)


def test_second_plans_have_the_cube_while_it_lies_still_and_there_are_720_trials_and_two_weights(family) -> None:
    for split, silos in (("diagonal", 1), ("iid", 2), ("noniid", 2)):
        task, problem = make_task(split), family(split, invented()).problem(BUDGETS["smoke"])
        assert (task.silos, len(problem.federation), problem.guidance_weight) == (silos, silos, 2.0)
        assert task.configure(task.settings).inpaint is planning.inpainting
    assert [still_frames(stride) for stride in (1, 2, 4, 8)] == [16, 8, 4, 2]
    assert NUM_GROUPS * TRIALS["standard"] == 720


def test_ceilings_are_the_tasks_whatever_the_runs_seed(tmp_path: Path, monkeypatch) -> None:
    orders: list[list[Trial]] = []

    class Noted(OneProcess):
        def map(self, items, **how):
            orders[-1] += items
            return super().map(items, **how)

    monkeypatch.setattr(planning_evaluation, "Workers", Noted)
    for seed in (0, 1):
        orders.append([])
        judge(invented(), Settings(), context(tmp_path / str(seed), seed)).prepare()
    assert len(orders[0]) == len(orders[1]) > 0
    assert all(one.seed == other.seed and numpy.array_equal(one.start, other.start) for one, other in zip(*orders, strict=True))


def test_a_split_without_recorded_segments_has_no_ceiling(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(planning_evaluation, "Workers", OneProcess)
    found = invented()
    seen = numpy.array([tuple(cell) in HOLDOUT.seen_cells for cell in found.cells.tolist()])
    recorded = Segments(found.plans[seen], found.cells[seen])
    referee = judge(recorded, Settings(), context(tmp_path))
    scores = {score.name: score for score in referee.evaluate(Perfect(found)).scores}
    assert scores["heldout_success_rate"].value == 100
    assert scores["heldout_success_rate"].ceiling is None
    assert "heldout_execution_ceiling" not in scores
    assert scores["seen_success_rate"].ceiling is not None


def test_recorded_plans_come_in_turn_and_the_one_nearest_to_a_given_cube_and_goal_keeps_what_is_given() -> None:
    found = invented(3)
    plans = found.plans + numpy.linspace(0, 5.0, len(found.plans), dtype=numpy.float32)[:, None, None]
    recorded = RecordedPlans(Segments(plans, found.cells))
    condition = torch.tensor([[1, 2]] * 4)
    drawn = recorded(condition, stream="seen")
    assert torch.equal(drawn[0], drawn[3])
    assert len({float(plan[0, 0]) for plan in drawn}) == 3
    known, mask = drawn.clone(), torch.zeros(drawn.shape, dtype=torch.bool)
    known[:, CUBE, 0] += 0.01
    known[:, 0] = 99.0  # not asked for, or a foreign arm: neither decides
    mask[:, CUBE, 0] = mask[:, CUBE, -1] = mask[:, 0, 0] = True
    again = recorded(condition, stream="seen inpaint", known=known, known_mask=mask)
    assert torch.equal(again[mask], known[mask])
    assert torch.equal(again[~mask], drawn[~mask])


class Memory(RecordedPlans):
    """A model that knows recorded plans by heart: around given entries it answers with the plan that is nearest to them."""

    def __init__(self, found: Segments) -> None:
        super().__init__(found)
        self.plans = torch.from_numpy(normalised(found.plans))

    def __call__(self, condition, *, stream, known=None, known_mask=None):
        if known is None:
            return super().__call__(condition, stream=stream)
        apart = ((self.plans - known[:, None]).square() * known_mask[:, None]).sum((-1, -2))
        return torch.where(known_mask, known, self.plans[apart.argmin(1)])


@pytest.fixture(scope="module")
def remembered(played: Trajectories, tmp_path_factory) -> dict[str, object]:
    """Scores of a model that memorised the segments of two episodes, carried out in the simulator."""
    found = segments(played, stride=4, episodes=2)
    referee = judge(found, Settings(), context(tmp_path_factory.mktemp("cache")))
    memory = Memory(found)
    referee.cells = {"seen": memory.cells(HOLDOUT.seen_cells + HOLDOUT.cells)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning_evaluation, "NUM_GROUPS", 2)
        patch.setattr(planning_evaluation, "Workers", Here)
        return {score.name: score for score in referee.evaluate(memory).scores}


@pytest.mark.slow
def test_a_model_that_memorised_recorded_plans_comes_out_near_their_ceiling(remembered) -> None:
    assert remembered["seen_feasibility"].value == remembered["seen_success_rate_direct"].value == 100
    assert remembered["seen_success_rate"].value >= 75
    assert remembered["seen_success_rate"].ceiling >= 75


@pytest.mark.slow
def test_a_foreign_arm_pose_that_is_given_too_misleads_a_model_that_memorised_its_plans(remembered) -> None:
    assert remembered["seen_success_rate_whole_state"].value <= remembered["seen_success_rate"].value - 25


def test_plans_in_the_wrong_quadrant_are_neither_feasible_nor_carried_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(planning_evaluation, "Workers", OneProcess)
    found = invented()
    shifted = Segments(found.plans, (found.cells + 1) % 4)
    referee = judge(found, Settings(), context(tmp_path))
    values = {score.name: score.value for score in referee.evaluate(Perfect(shifted)).scores}
    assert values["heldout_feasibility"] == values["heldout_success_rate"] == values["heldout_success_rate_direct"] == 0


def test_panels_draw_success_green_and_failure_red() -> None:
    found = invented(1)
    good, bad = (Outcome(distance, True, True, found.plans[1, CUBE].T) for distance in (0.0, 0.2))
    blank, green, red = (
        panels(found.cells[1:2], found.plans[1:2], [outcome], heldout=HOLDOUT.cells) for outcome in (None, good, bad)
    )
    assert blank.dtype == numpy.uint8

    def count(picture, channel) -> int:
        others = [k for k in range(3) if k != channel]
        return int((picture[..., channel].astype(int) - picture[..., others].max(2) > 30).sum())

    assert count(green, 1) > 20 > count(red, 1)
    assert count(red, 0) > 20 > count(green, 0)
