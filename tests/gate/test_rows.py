import pytest

from compbench.gate import answer as report
from compbench.gate.paired_test import compare
from compbench.gate.rows import Row, accepted_in, accepting, answer, fact_rows, score_rows, settled, speed_row
from compbench.gate.sides import Facts, ScoreBySeed, Scores
from compbench.gate.speed import Lap

HERE, ELSEWHERE = "torch 2.6, AVX512", "torch 2.6, AVX2"
FACTS = {"parameters": 100, "evaluations": 4, "flops_per_fit": 1e6, "training_bytes": 1_000_000, "samples_sha256": "a" * 64}


def verdicts(changed, machine=HERE):
    rows = fact_rows("m/t", "base", Facts(FACTS, HERE), Facts({**FACTS, **changed}, machine))
    return {row.what: row.verdict for row in rows}


def scores(values, *, version=1, task_version=1, direction="lower"):
    own = ScoreBySeed(metric="sw2", metric_version=version, direction=direction, values=values)
    return Scores({"heldout_sw2": own}, task_version)


def row(verdict="pass", **more):
    own = {"cell": "m/t", "gate": "exact", "what": "parameters", "against": "base", "base": 1.0, "head": 1.0, "change": ""}
    return Row(**{**own, "verdict": verdict, **more})


def test_the_same_facts_pass() -> None:
    assert set(verdicts({}).values()) == {"pass"}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"parameters": 101}, "regression"),
        ({"parameters": 99}, "better"),
        ({"evaluations": 5}, "regression"),
        ({"flops_per_fit": 1e6 + 1}, "regression"),
        ({"training_bytes": 1_009_000}, "pass"),
        ({"training_bytes": 1_020_000}, "notice"),
        ({"training_bytes": 2_200_000}, "regression"),
        ({"training_bytes": 900_000}, "better"),
    ],
)
def test_more_of_a_cost_is_a_regression(changed, verdict) -> None:
    assert verdicts(changed)[next(iter(changed))] == verdict


def test_two_forwards_made_one_are_no_regression_over_the_memory_that_both_take() -> None:
    base = {"evaluations": 2, "flops_per_sample": 1000.0, "training_bytes": 900_000, "sampling_bytes": 22_048}
    head = {**base, "evaluations": 1, "flops_per_sample": 690.0, "sampling_bytes": 52_832}
    rows = {row.what: row.verdict for row in fact_rows("a", "base", Facts(base, "x"), Facts(head, "x"))}
    assert rows["sampling_bytes"] == "notice"
    assert "regression" not in rows.values()
    much = {**head, "sampling_bytes": 2**30}
    rows = {row.what: row.verdict for row in fact_rows("a", "base", Facts(base, "x"), Facts(much, "x"))}
    assert rows["sampling_bytes"] == "notice"  # it does less work
    rows = {
        row.what: row.verdict
        for row in fact_rows("a", "base", Facts(base, "x"), Facts({**much, "evaluations": 2, "flops_per_sample": 1000.0}, "x"))
    }
    assert rows["sampling_bytes"] == "regression"


def test_other_samples_alone_are_a_notice() -> None:
    found = verdicts({"samples_sha256": "b" * 64})
    assert found.pop("samples") == "notice"
    assert set(found.values()) == {"pass"}


def test_bytes_and_hash_of_another_machine_are_notices_and_the_rest_still_counts() -> None:
    found = verdicts({"training_bytes": 2_000_000, "samples_sha256": "b" * 64, "parameters": 101}, ELSEWHERE)
    assert found == {
        "parameters": "regression",
        "evaluations": "pass",
        "flops_per_fit": "pass",
        "training_bytes": "notice",
        "samples": "notice",
    }


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        ({0: 1.0, 1: 2.0, 2: 3.0}, "pass"),
        ({0: 1.5, 1: 2.51, 2: 3.49}, "regression"),
        ({0: 0.5, 1: 1.51, 2: 2.49}, "better"),
        ({0: 1.5, 1: 1.5, 2: 3.0}, "inconclusive"),
        ({0: 1.5}, "inconclusive"),
        ({7: 1.0}, "notice"),
    ],
)
def test_scores_are_judged_in_pairs_against_the_margin(head, verdict) -> None:
    base = scores({0: 1.0, 1: 2.0, 2: 3.0})
    (found,) = settled(score_rows("m/t", "base", base, scores(head), {"sw2": 0.02}))
    assert found.verdict == verdict


def test_scores_of_another_version_are_not_compared() -> None:
    base = scores({0: 1.0, 1: 1.0})
    for other in (scores({0: 9.0, 1: 9.0}, version=2), scores({0: 9.0, 1: 9.0}, task_version=2)):
        (found,) = settled(score_rows("m/t", "base", base, other, {}))
        assert found.verdict == "notice"


OFFICIAL, EMBEDDED = {"source": "official", "fingerprint": "f1"}, {"source": "embedded", "fingerprint": "renderer-1"}


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (OFFICIAL, EMBEDDED, "notice"),
        (EMBEDDED, OFFICIAL, "notice"),
        (OFFICIAL, {**OFFICIAL, "fingerprint": "f2"}, "notice"),
        (OFFICIAL, OFFICIAL, "regression"),
        ({}, OFFICIAL, "regression"),
    ],
    ids=["without the file", "with the file", "another file", "the same", "an old baseline"],
)
def test_scores_of_other_data_are_not_compared(ours, theirs, verdict) -> None:
    base, head = scores({0: 1.0, 1: 1.0})._replace(**ours), scores({0: 9.0, 1: 9.001})._replace(**theirs)
    (found,) = settled(score_rows("m/t", "base", base, head, {}))
    assert (found.verdict, "other data" in found.note) == (verdict, verdict == "notice")


def test_a_weak_regression_among_many_scores_is_inconclusive() -> None:
    base, weak = scores({0: 1.0, 1: 1.0, 2: 1.0}), scores({0: 1.3, 1: 1.4, 2: 1.2})
    same = score_rows("m/t", "base", base, base, {})
    alone = score_rows("m/t", "base", base, weak, {})
    assert settled(alone)[0].verdict == "regression"
    assert settled([*alone, *same * 10])[0].verdict == "inconclusive"


def test_a_lap_says_how_many_pairs_would_do() -> None:
    lap = Lap("m/t", "train", (1.0, 1.0), (1.1, 0.9), compare([0.1, -0.1], 0.05), False, False, False, 12)
    found = speed_row(lap, "base", 0.05)
    assert (found.verdict, found.what) == ("inconclusive", "training step")
    assert "about 12 pairs would decide" in found.note


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["pass", "better", "notice", "accepted"], "pass"),
        (["pass", "inconclusive"], "inconclusive"),
        (["inconclusive", "could not run"], "could not run"),
        (["could not run", "regression", "inconclusive"], "regression"),
    ],
)
def test_the_answer_is_the_worst_that_is_sure(found, expected) -> None:
    assert answer([row(verdict) for verdict in found]) == expected


def test_a_base_with_which_nothing_could_be_compared_is_no_pass() -> None:
    assert answer([row("notice", base=None)]) == "could not run"
    assert answer([]) == "could not run"


@pytest.mark.parametrize("pattern", ["m/t parameters", "m/* param*", "*/t", "m/*"])
def test_a_regression_that_is_meant_is_accepted(pattern) -> None:
    assert accepting([row("regression")], [pattern])[0].verdict == "accepted"


@pytest.mark.parametrize("pattern", ["m/t flops*", "n/*", "parameters"])
def test_other_regressions_are_not(pattern) -> None:
    assert accepting([row("regression")], [pattern])[0].verdict == "regression"


def test_training_step_is_accepted_by_its_name() -> None:
    assert accepting([row("regression", what="training step")], ["m/t training step"])[0].verdict == "accepted"


def test_patterns_come_from_trailers_of_commit_messages() -> None:
    message = "Heads are wider\n\nGate-accept: factored/* parameters\nGate-accept:  */gmm-id flops \nNot-Gate-accept: x\n"
    assert accepted_in(message) == ["factored/* parameters", "*/gmm-id flops"]


def test_markdown_shows_names_and_errors_as_they_stand() -> None:
    text = report.markdown([row("regression", cell="a|b/`t`", note="<img src=x onerror=y> *bold*\n| new row | @team")])
    assert "<img" not in text
    assert "@team" not in text
    assert "\\`t\\`" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {len(report.SHOWN) + 1}


def test_json_says_answer_and_exit_status() -> None:
    import json

    found = json.loads(report.as_json([row("regression")], {}))
    assert (found["answer"], found["exit_status"], found["rows"][0]["what"]) == ("regression", 1, "parameters")
