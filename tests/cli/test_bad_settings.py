"""What a sampler cannot be asked for: one line that says what was asked and what to do, before anything is trained."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from compbench.cli.main import main


@pytest.mark.parametrize(
    ("method", "task", "setting", "message"),
    [
        ("naive-sde", "gmm-ood", "budget.sample_steps=-5", "--set budget.sample_steps=-5: it takes 0 < integer"),
        ("rne", "gmm-ood", "num_steps=-1", "--set num_steps=-1: it takes 1 <= integer <= 100000 or budget ("),
        ("fkc", "gmm-ood", "num_particles=0", "--set num_particles=0: it takes 1 <= integer ("),
        ("mcmc", "gmm-ood", "step_size=0", "--set step_size=0: it takes 0 < number <= 100 ("),
        ("superdiff-or", "blobs-noniid", "temperature=-1", "--set temperature=-1: it takes 0 <= number"),
        ("fedprox", "blobs-noniid", "mu=-1", "--set mu=-1: it takes 0 <= number"),
        ("scaffold", "blobs-noniid", "rounds=0", "--set rounds=0: it takes 1 <= integer"),
        ("factored", "gmm-id", "head_width=abc", "--set head_width='abc': it takes 0 < number <= 8 (hidden units of"),
        ("interval-cfg", "blobs-noniid", "begin=0.9", "--set begin=0.9: begin must not be after end, got 0.9 and 0.8 (method"),
        ("soup", "blobs-noniid", "pi_full=0.5", "--set pi_full=0.5: pi_full + pi_marginal + pi_unconditional must be 1, got 0.8"),
        ("cfg-plus", "gmm-id", "strength=0.5", "composes around a base combination, not around NULL"),
        ("interval-cfg", "gmm-id", "weight=2", "composes around a base combination, not around NULL"),
        ("fkc-oracle", "blobs-noniid", "num_particles=2", "the task has no analytic scores"),
        ("soup", "gmm-id", "local_ci=true", "the task has one silo"),
    ],
)
def test_what_a_sampler_cannot_do_is_one_line_with_exit_status_2(
    method: str, task: str, setting: str, message: str, tmp_path: Path
) -> None:
    words = ["run", "--method", method, "--task", task, "--preset", "smoke", "--set", setting, "--dry-run"]
    found = CliRunner().invoke(main, words, env={"COMPBENCH_HOME": str(tmp_path)})
    assert found.exit_code == 2
    assert message in found.output
    assert len(found.output.strip().splitlines()) == 1
