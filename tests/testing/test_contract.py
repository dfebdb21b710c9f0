import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner
from compbench_methods.stripes import compbench_methods as stripes_methods
from compbench_methods.transformer_decoder import compbench_methods as transformer_methods
from pydantic import Field
from support.template import TEMPLATE

from compbench.api.interfaces import MethodSettings
from compbench.cli.main import main
from compbench.system.errors import CompbenchError
from compbench.testing import ContractBroken, check_method
from compbench.testing.clauses import settings, x0
from compbench.testing.examine import report_on
from compbench.testing.outside import check
from compbench.testing.verdicts import CHECKS, CLAUSES, PAGE, Finding, Report, failed
from compbench.testing.watched import Broken, shortened

(TRANSFORMER,), (STRIPES,) = transformer_methods(), stripes_methods()


def examined(file: Path, **options) -> Report:
    return check("naughty", plugins=(file,), **options)


def of(report: Report, name: str) -> Finding:
    return next(finding for finding in report.failures if finding.check == name)


def test_every_check_has_a_clause_that_says_what_is_expected_and_how_to_mend_it() -> None:
    assert set(CHECKS) <= set(CLAUSES)
    assert all(clause.expected and clause.fix for clause in CLAUSES.values())


def test_every_clause_has_its_section_on_the_page_that_findings_name() -> None:
    page = (Path(__file__).parents[2] / PAGE).read_text()
    sections = {line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")}
    assert set(CLAUSES) <= sections


def test_dropout_resumes_bit_for_bit() -> None:
    report = report_on(TRANSFORMER, only=("resume",), device="cpu")
    assert [(one.problem, one.status) for one in report.findings] == [("image", "ok")]


def test_a_problem_that_a_method_refuses_is_skipped_with_its_reason() -> None:
    report = report_on(STRIPES, only=("shape", "kinds"), device="cpu")
    assert report.ok
    (refused,) = [one for one in report.findings if one.status == "skipped"]
    assert (refused.problem, refused.check) == ("image", "fit")
    assert "no examples of single factors" in refused.found


def test_what_a_plugin_prints_forges_no_report(plugin) -> None:
    forged = json.dumps([{"check": "fit", "status": "ok"}])
    report = examined(plugin(fit=f"print({forged!r}, flush=True); raise SystemExit(0)"), only=("fit",))
    found = [one for one in report.findings if one.check == "fit"]
    assert [one.status for one in found].count("failed") == 1  # on other problems it is skipped: it fails as on the first
    assert {one.status for one in found} == {"failed", "skipped"}
    assert "SystemExit" in of(report, "fit").found
    assert "naughty.py, line" in of(report, "fit").found


def test_a_process_that_goes_away_fails_the_check_that_was_going_on(plugin) -> None:
    report = examined(plugin(fit="os._exit(0)"))
    assert not report.ok
    assert "exit status 0" in of(report, "process").found
    assert "'fit'" in of(report, "process").found


def test_a_fit_that_hangs_is_a_finding(plugin) -> None:
    report = examined(plugin(fit="time.sleep(600)"), time_limit=6)
    assert "not done within 6 s, during" in of(report, "time").found
    assert report.seconds < 60


def test_a_plugin_that_does_not_load_is_a_finding(plugin) -> None:
    report = examined(plugin(head="raise RuntimeError('no')"))
    assert "RuntimeError: no" in of(report, "loads").found


def test_an_unknown_check_or_device_is_a_mistake_of_the_caller(plugin) -> None:
    with pytest.raises(CompbenchError, match="no check of methods named 'speed'"):
        examined(plugin(), only=("speed",))
    with pytest.raises(CompbenchError, match="CUDA device|no device"):
        examined(plugin(), device="cuda:9")


def test_settings_may_be_words_unions_and_tuples_that_are_bounded() -> None:
    class Fine(MethodSettings):
        a: tuple[float, float] = Field((1.0, 2.0), description="all")
        b: Annotated[float, Field(ge=0)] | Literal["off"] = Field(1.0, description="all")

    class Unbounded(Fine):
        c: float | None = Field(None, ge=0, description="all")

    class Free(Fine):
        c: str = Field("", description="all")

    found = {}
    for own in (Fine, Unbounded, Free):
        with pytest.raises(Broken) as caught:
            settings(replace(TRANSFORMER, settings=own))
        found[own] = caught.value.found
    assert found == {
        Fine: "'a' has no bound",
        Unbounded: "'a' has no bound; 'c' may be None, which says nothing",
        Free: "'a' has no bound; 'c' is any text",
    }


def test_a_sampler_whose_number_of_steps_is_a_word_is_shortened_where_its_class_takes_a_number() -> None:
    class Auto(MethodSettings):
        num_inner: Annotated[int, Field(ge=1)] | Literal["auto"] = Field("auto", description="moves")
        num_levels: Literal["few", "many"] = Field("many", description="a word alone")
        num_particles: int = Field(16, ge=1, description="too many")
        num_steps: int = Field(3, ge=1, description="few enough")

    asked = {"num_inner": 1, "num_levels": 2, "num_particles": 8, "num_steps": 6}
    assert shortened(Auto(), asked) == Auto(num_inner=1, num_particles=8)


def test_the_report_is_written_as_text_and_json() -> None:
    found = Finding("fit", "vector", "ok"), failed("x0", "image", "<&\x00"), Finding("null", "", "skipped", "why")
    report = Report("m", found, 2.0)
    assert not report.ok
    lines = list(report.lines(verbose=False))
    assert lines[0] == "failed  x0 [image]"
    assert lines[-1] == "m: 1 ok, 1 failed, 1 skipped in 2.0 s"
    facts = json.loads(json.dumps(report.as_json()))
    assert facts["findings"][1]["expected"] == CLAUSES["x0"].expected


def test_a_report_without_failures_says_which_checks_were_skipped_and_why() -> None:
    skipped = (Finding("extend", "vector", "skipped", "no extend"), Finding("extend", "image", "skipped", "no extend"))
    noise = Finding("x0", "bumps", "skipped", "one sample each")
    lines = list(Report("m", (Finding("fit", "vector", "ok"), noise, *skipped), 2.0).lines(verbose=False))
    assert lines == ["skipped extend (2): no extend; x0 [bumps]: one sample each", "m: 1 ok, 3 skipped in 2.0 s"]


def test_a_report_of_nothing_is_not_ok() -> None:
    assert not Report("m", (), 0.0).ok
    assert not Report("m", (Finding("fit", "", "skipped"),), 0.0).ok


def test_check_writes_json_and_exits_with_1(plugin) -> None:
    file = plugin(sample="return request.x0.double()")
    done = CliRunner().invoke(main, ["check", "--plugin", str(file), "--only", "dtype", "--device", "cpu", "--json"])
    assert done.exit_code == 1, done.output
    (report,) = json.loads(done.output)
    assert report["method"] == "naughty"
    assert {one["check"] for one in report["findings"] if one["status"] == "failed"} == {"dtype"}


def test_check_without_a_name_says_what_to_give() -> None:
    done = CliRunner().invoke(main, ["check"])
    assert done.exit_code == 2
    assert "--all" in done.output


def test_check_method_raises_with_the_findings() -> None:
    broken = replace(TRANSFORMER, kinds=("image", "vector"))
    with pytest.raises(ContractBroken, match=r"kinds: expected: .*vector: .*to fix: ") as caught:
        check_method(broken, only=("kinds",))
    assert [one.check for one in caught.value.report.failures] == ["kinds"]
    assert check_method(TRANSFORMER, only=("settings",)).ok


def test_pytest_checks_the_contract_of_a_method(tmp_path) -> None:
    words = [*TEMPLATE.module("pytest"), "-q", "-p", "no:cacheprovider", "-k", "settings or fit", "--compbench"]
    done = subprocess.run(
        [*words, "cnn-decoder", "--junitxml", "report.xml"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    cases = ElementTree.parse(tmp_path / "report.xml").getroot().iter("testcase")
    assert {case.get("name") for case in cases} == {"settings", "fit"}
    done = subprocess.run([*words, "cnn-decodr"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "Did you mean 'cnn-decoder'" in done.stdout + done.stderr


def test_one_line_that_raises_everywhere_is_one_finding_with_advice_on_shapes(plugin) -> None:
    fit = "model = torch.nn.Linear(1, 1)\n    return model"
    report = examined(plugin(fit=fit, sample="return request.x0 + torch.zeros(len(request.x0) + 2, 1)"), device="cpu")
    (only,) = [one for one in report.failures if "must match" in one.found]
    assert (only.check, only.problem) == ("shape", "vector")
    assert "times t are (B,)" in only.fix
    assert "naughty.py, line" in only.found


def test_a_wrong_shape_is_named_once_whatever_the_number_of_dimensions(plugin) -> None:
    report = examined(plugin(fit="return torch.nn.Linear(1, 1)", sample="return request.x0[..., :1]"), device="cpu")
    assert [one.problem for one in report.failures if one.check == "shape"] == ["vector"]


@pytest.mark.parametrize("couples_rows", [False, True])
def test_rows_may_share_noise_only_if_that_is_declared(couples_rows: bool) -> None:
    subject = SimpleNamespace(
        method=SimpleNamespace(regresses=False, couples_rows=couples_rows),
        fitted_on=SimpleNamespace(deterministic=False),
        condition=torch.zeros(1, 2),
        noise=lambda count: torch.arange(float(count))[:, None],
        sample=lambda condition, noise: noise - noise.mean(0),
        alike=torch.equal,
        differ=lambda x, y: not torch.equal(x, y),
    )
    if couples_rows:
        assert "share" in x0(subject)
    else:
        with pytest.raises(Broken, match="other rows"):
            x0(subject)
