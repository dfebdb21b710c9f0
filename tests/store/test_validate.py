"""One judgement of costs: what a run writes down is what `verify` and `submit` accept."""

from __future__ import annotations

import pytest
from support.sample_records import record, score

from compbench.api.interfaces import CellCount
from compbench.api.schemas import Profile, Record, Shots, Stage
from compbench.api.shots import digest_of
from compbench.store.validate import SPEEDS, check_costs, check_shots, judged
from compbench.system.errors import CompbenchError


def of(
    *, rate: float | None, fit_seconds: float, seconds: float = 60.0, share: float | None = None, distrust: str = ""
) -> Record:
    """A record of 30 training steps."""
    profile = Profile(
        train_steps=30,
        train_steps_per_second=rate,
        sample_samples_per_second=rate and 99.0,
        share_of_peak_training=share,
        stages=(Stage(name="fit", seconds=fit_seconds),),
        distrust=distrust,
    )
    return record().model_copy(update={"profile": profile, "seconds": seconds})


@pytest.mark.parametrize(
    ("doubted", "said"),
    [
        (of(rate=20.97, fit_seconds=10.06), "it says 20.97 training steps/s, and 30 steps in a fit of 10.06 s"),
        (
            of(rate=18.1, fit_seconds=19.4),
            "it says 18.1 training steps/s, and 30 steps in a fit of 19.4 s",
        ),  # reported in a burst
        (of(rate=5.0, fit_seconds=24.0), "it says 5 training steps/s, and 30 steps in a fit of 24 s"),  # the last quarter of it
        (
            of(rate=10.0, fit_seconds=3.0, share=1.2),
            "it has a share of peak training of 1.2, but a share of the peak is at most 1",
        ),
        (of(rate=None, fit_seconds=80.0), "it has stages of 80 s in a run of 60 s"),
    ],
)
def test_a_contradiction_is_written_into_the_record_drops_its_speeds_and_is_not_refused_later(doubted: Record, said: str) -> None:
    with pytest.raises(CompbenchError):
        check_costs(doubted)
    written = judged(doubted)
    check_costs(written)
    assert written.profile.distrust == said
    assert all(getattr(written.profile, name) is None for name in SPEEDS)
    assert written.model_copy(update={"profile": doubted.profile}) == doubted
    assert judged(written) == written


def test_a_record_without_a_contradiction_stays_as_it_is() -> None:
    sound = of(rate=10.0, fit_seconds=3.2)
    assert judged(sound) == sound


def test_a_record_that_doubts_its_speeds_and_has_some_is_refused() -> None:
    with pytest.raises(CompbenchError, match="has speeds, although it says that they cannot be true"):
        check_costs(of(rate=10.0, fit_seconds=3.0, distrust="it was busy"))


def shot(*names: str, per_cell: int = 2, num_cells: int = 2) -> Shots:
    examples = tuple(f"{name}#{number:08x}" for number, name in enumerate(names))
    return Shots(per_cell=per_cell, num_cells=num_cells, digest=digest_of(examples), examples=examples)


def trained_on(shots: Shots | None, asked: int | None = 2) -> Record:
    """A record of shapes3d-heavy (shape is its fifth factor, object hue its third) that was scored on two held-out cells."""
    cells = (CellCount((0, 1), 1, 2), CellCount((0, 2), 1, 2))
    settings = {} if asked is None else {"shots": asked}
    return record(score(value=0.5, n=4, by_cell=cells), task_settings=settings, more={"shots": shots})


HONEST = ("0.0.1.0.0.0", "3.0.1.2.0.0", "0.0.2.0.0.1", "0.0.2.0.0.2")


def test_a_record_that_names_the_shots_of_its_settings_is_sound() -> None:
    check_shots(trained_on(shot(*HONEST)))
    check_shots(trained_on(None, asked=None))


@pytest.mark.parametrize(
    ("shots", "asked", "said"),
    [
        (None, 2, "does not name them"),
        (shot(*HONEST), None, "its settings ask for none"),
        (shot(*HONEST), 4, "names 2 shots of each held-out cell; its settings ask for 4"),
        (shot(*HONEST[:3]), 2, "does not name 2 different shots"),
        (shot(*HONEST).model_copy(update={"digest": "0" * 64}), 2, "does not name 2 different shots"),
        (shot(*HONEST[:3], "0.0.1.0.0.1"), 2, "other cells than those that it scored"),
        (shot(*HONEST[:2], "0.0.3.0.0.1", "0.0.3.0.0.2"), 2, "other cells than those that it scored"),
    ],
)
def test_a_record_with_other_shots_than_it_says_is_refused(shots: Shots | None, asked: int | None, said: str) -> None:
    with pytest.raises(CompbenchError, match=said):
        check_shots(trained_on(shots, asked))
