"""One judgement of costs: what a run writes down is what `verify` and `submit` accept."""

from __future__ import annotations

import pytest
from support.sample_records import record

from compbench.api.schemas import Profile, Record, Stage
from compbench.store.validate import SPEEDS, check_costs, judged
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
    with pytest.raises(CompbenchError, match="has speeds, and says that they cannot be true"):
        check_costs(of(rate=10.0, fit_seconds=3.0, distrust="it was busy"))
