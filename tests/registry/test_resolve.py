"""What a run's identity holds of what is installed: the metrics that its task scores by, and no others."""

from dataclasses import replace
from typing import Any

import numpy
import pytest
from support.sample_records import record

from compbench.api.interfaces import Method, MethodSettings, Metric, SamplePair, Task, Value
from compbench.api.schemas import RunRequest
from compbench.registry.registry import Entry, LoadResult, Registry
from compbench.registry.resolve import check_same, contrast, metrics_of, settings_of, with_its_features
from compbench.system.errors import CompbenchError


class Larger(Registry):
    """The registry with one more metric installed."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric, self.imported = metric, 0
        self.own = Entry("metrics", metric.name, "elsewhere", "1", "elsewhere", None, "")

    def entries(self, kind):
        return (*super().entries(kind), *([self.own] if kind == "metrics" else []))

    def attempt(self, entry: Entry) -> LoadResult:
        self.imported += entry == self.own
        return LoadResult(entry, "ok", "", self.metric) if entry == self.own else super().attempt(entry)


def task(name: str) -> Task:
    return Registry().load("tasks", name)


def test_a_metric_of_another_package_is_imported_only_where_task_or_run_names_it() -> None:
    more = Larger(Metric("spread", "a new one", "", "lower", kinds=("vector",)))
    images, plane = task("shapes3d-heavy"), task("gauss2d-fact-id")
    for asked in (images, plane):
        assert metrics_of(asked, more) == metrics_of(asked, Registry())
    assert more.imported == 0
    assert set(metrics_of(plane, more, ("spread",))) - set(metrics_of(plane, Registry())) == {"spread"}
    assert set(metrics_of(replace(plane, metrics=("sw2", "spread")), more)) == {"sw2", "spread"}
    with pytest.raises(CompbenchError, match="'spread' scores samples of the kind vector, those of task 'shapes3d-heavy' are of"):
        metrics_of(images, more, ("spread",))


def test_a_task_is_scored_by_the_metrics_of_its_own_package() -> None:
    more = Larger(Metric("spread", "a new one", "", "lower", kinds=("vector",)))
    theirs = Entry("tasks", "theirs", "elsewhere", "1", "elsewhere", None, "")
    more.entries = lambda kind: (*Larger.entries(more, kind), *([theirs] if kind == "tasks" else []))
    plane = task("gauss2d-fact-id")
    assert set(metrics_of(replace(plane, name="theirs"), more)) - set(metrics_of(plane, more)) == {"spread"}


def test_a_task_that_names_its_metrics_scores_by_these_alone() -> None:
    images = task("shapes3d-heavy")
    assert set(metrics_of(replace(images, metrics=("kid", "sw2")), Registry())) == {"kid", "sw2"}
    assert metrics_of(task("bump-center"), Registry()) == {}
    assert metrics_of(task("rotation"), Registry()) == {}


class Broken(Registry):
    """A registry in which a metric does not load, as one whose name two packages claim."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def attempt(self, entry: Entry) -> LoadResult:
        bad = entry.kind == "metrics" and entry.name == self.name
        return LoadResult(entry, "broken", f"the name '{entry.name}' is claimed by two") if bad else super().attempt(entry)


def test_a_metric_that_ranks_or_is_named_and_does_not_load_ends_the_run_and_another_is_left_out() -> None:
    plane, images = task("gauss2d-fact-id"), task("shapes3d-heavy")
    whole = set(metrics_of(plane, Registry()))
    for asked, name in ((plane, "sw2"), (images, "accuracy"), (replace(images, metrics=("kid", "fid")), "fid")):
        with pytest.raises(CompbenchError, match=f"^metric '{name}' is broken: the name '{name}' is claimed by two"):
            metrics_of(asked, Broken(name))
    other = min(whole - {"sw2"})
    assert set(metrics_of(plane, Broken(other))) == whole - {other}


def test_two_long_texts_are_shown_from_where_they_differ() -> None:
    spec = record().spec
    here = spec.model_copy(update={"fingerprint": "a" * 300 + "today"[:5]})
    there = spec.model_copy(update={"fingerprint": "a" * 300 + "then"})
    with pytest.raises(CompbenchError, match="fingerprint was …a+then, here it is …a+today") as error:
        check_same(here, there)
    assert len(str(error.value)) < 250
    assert contrast("one", "two") == ("one", "two")
    assert contrast("a" * 300, "a" * 301) == ("…" + "a" * 50, "…" + "a" * 51)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), (1.0, float("-inf"))])
def test_a_default_that_is_no_finite_number_is_refused(value: object) -> None:
    class Clipped(MethodSettings):
        clip: Any = value

    method = Method(name="clipped", settings=Clipped, fit=lambda *_: None, sample=lambda *_: None)
    with pytest.raises(CompbenchError, match="--set clip=.*: a setting is a finite number"):
        settings_of(RunRequest(task="t", method="clipped", home="/nowhere"), method)


def test_a_metric_is_refused_where_the_task_does_not_extract_its_features() -> None:
    images, plane = task("shapes3d-heavy"), task("gauss2d-fact-id")
    with pytest.raises(CompbenchError, match="needs features 'imagenet' of task 'shapes3d-heavy': it extracts judge and"):
        metrics_of(images, Registry(), ("fd_imagenet",))
    clip = Metric("clip_distance", "in CLIP's features", "", "lower", kinds=("image", "vector"), features=("clip",))
    with pytest.raises(CompbenchError, match="'clip_distance' needs features 'clip' of task 'gauss2d-fact-id': it extracts none"):
        metrics_of(plane, Larger(clip), ("clip_distance",))
    assert "clip_distance" in metrics_of(replace(images, metrics=(), features=("clip",)), Larger(clip), ("clip_distance",))


def test_a_metric_reads_the_features_that_it_declares_and_no_others() -> None:
    def compute(pair: SamplePair, generator: object) -> Value:
        return Value(float(pair.features("judge", "real")[0]))

    pair = SamplePair(None, None, None, lambda extractor, which: numpy.array([3.0]))
    metric = Metric("first", "the first feature", "", "lower", compute=compute, features=("judge",))
    assert with_its_features(metric).compute(pair, None) == Value(3.0)
    with pytest.raises(CompbenchError, match="features 'judge', which it does not declare: .*features=\\('judge',\\)"):
        with_its_features(replace(metric, features=())).compute(pair, None)
