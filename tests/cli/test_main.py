import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record

from compbench.api.executor import RunResult
from compbench.api.schemas import RunRequest
from compbench.cli.main import main
from compbench.cli.options import rebuild_board
from compbench.cli.plan import EXPECTED
from compbench.cli.sweep import _exit_status
from compbench.runner.attempt import Outcome
from compbench.store.lease import Busy
from compbench.store.records import Store
from compbench.sweep.matrix import Resolver
from compbench.system.errors import CompbenchError

LONG = "x" * 300
"""More than a file system takes for a name."""


@pytest.fixture
def cli(tmp_path: Path):
    def call(*words: str):
        return CliRunner().invoke(main, list(words), env={"COMPBENCH_HOME": str(tmp_path)})

    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--method", "facored", "--task", "shapes3d-heavy"), "Did you mean 'factored'"),
        (("run", "--method", "factored", "--task", "shapes3d-hevy"), "Did you mean 'shapes3d-heavy'"),
        (("run", "--method", "factored", "--task", "shapes3d-heavy", "--seed", "4-0"), "a range goes upwards"),
        (("run", "--method", "factored", "--task", "shapes3d-heavy", "--set", "x"), "use NAME=VALUE"),
        (("run", "--method", "factored", "--task", "shapes3d-heavy", "--time-limit", "soon"), "15m or 2h"),
        (("run", "--method", "x", "--task", "shapes3d-heavy", "--plugin", "no.py"), "no such file"),
        (("sweep", "--method", "z*", "--task", "shapes3d-heavy"), "no method matches 'z*'"),
        (("info", "shapes3d-hevy"), "Did you mean"),
        (("doctor", "--device", "foo"), "compbench: no device is called 'foo'"),
        (("data", "fetch", "shapes"), "no data source named"),
        (("data", "fetch", "shapes3d", "--offline"), "of 'shapes3d' is missing"),
        (("board",), "there are no records"),
        (("show", "nothing"), "no record matching"),
        (("show", LONG), "no record matching"),
        (("verify", "--write"), "--write goes with --equal OLD NEW or --equal-code."),
        (("reproduce", LONG), "no record matching"),
        (("rescore", LONG), "no record matching"),
        (("submit", LONG, "--training-data", "seen", "--to", "leaderboards"), "no record matching"),
        (("run", "--method", "x", "--task", "gmm-id", "--plugin", LONG), "no such file"),
        (("sweep", "--file", f"{LONG}.toml"), "no such file"),
        (
            ("sweep", "--file", "nofile"),
            "no shipped sweep file named 'nofile'. Known: architectures, bumps, bumps-ablation, core, ",
        ),
        (("score", LONG, "--task", "gmm-id", "--quiet"), "is not an npz file of arrays"),
        (("score", "--weights", LONG, "--method", "fkc", "--task", "gmm-id", "--quiet"), "no such file"),
        (
            ("run", "--method", "mono", "--task", "gmm-id", "--device", "gpu"),
            "no device is called 'gpu'; use auto, cpu, cuda or cuda:N.",
        ),
        (
            ("sweep", "--method", "mono", "--task", "gmm-id", "--time-limit", "9" * 400),
            "time_limit of the run: Input should be a finite",
        ),
        (("run", "--method", "mono", "--task", "gmm-id", "--set", f"x={'[' * 60_000}"), "is nested more than"),
        (
            ("run", "--method", "mono", "--task", "gmm-id", "--set", "task.shot=1"),
            "Did you mean 'task.shots'? Known: task.means, ",
        ),
        (("score", "a.npz", "--task", "gmm-id", "--set", "foo=1"), "--set foo: samples have no settings of a method"),
        (
            ("run", "--method", "factored,mono", "--task", "gmm-id"),
            "run takes one method; for several: compbench sweep --method factored,mono --task gmm-id",
        ),
        (
            ("run", "--method", "mono", "--task", "gmm-*"),
            "run takes one task; for several: compbench sweep --method mono --task 'gmm-*'",
        ),
        (("data", "render", "dsprites", "--rows", "1", "--output", "/proc/none/a.png"), "could not write /proc/none/a.png"),
        (("data", "render", "dsprites", "--rows", "1", "--output", "a.none"), "use a name that ends in .png"),
    ],
)
def test_bad_input_is_one_line_with_exit_status_2(cli, words: tuple[str, ...], message: str) -> None:
    result = cli(*words)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("score", "a.npz", "--task", "gmm-id", "--seed", "3000000000"), "3000000000 is not in the range"),
        (("data", "render", "shapes3d", "--seed", "9" * 23), "is not in the range"),
        (("profile", "--method", "mono", "--task", "gmm-id", "--seconds", "nan"), "nan is not a finite number"),
        (("gate", "--method", "mono", "--task", "gmm-id", "--tolerance", "nan"), "nan is not a finite number"),
        (("reproduce", "a", "--tolerance", "nan"), "nan is not a finite number"),
        (("check", "mono", "--time-limit", "inf"), "inf is not a finite number"),
        (("sweep", "--threads", "1"), "sweep has no --threads; --slots N divides the cores among N runs."),
    ],
)
def test_an_option_or_a_value_that_a_verb_does_not_take_is_refused(cli, words: tuple[str, ...], message: str) -> None:
    result = cli(*words)
    assert result.exit_code == 2
    assert message in result.output


def test_seeds_that_another_process_runs_do_not_keep_a_run_from_the_others(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def run(request: RunRequest, **_: object) -> Outcome:
        begun.append(request.seed)
        if request.seed == 1:
            raise Busy(tmp_path / "lease", "process 7 on here", "seed 1 is being run by another process (process 7 on here).")
        one = record(seed=request.seed)
        return Outcome(one, tmp_path / f"{one.name}.json", reused=False)

    monkeypatch.setattr("compbench.cli.run.run_one", run)
    words = ("run", "--method", "factored", "--task", "shapes3d-heavy", "--quiet", "--json", "--seed")
    found = cli(*words, "1-2")
    assert begun == [1, 2]
    assert found.exit_code == 2
    assert "compbench: seed 1 is being run by another process" in found.output
    assert json.loads(found.stdout.splitlines()[-1])["spec"]["seed"] == 2
    assert cli(*words, "1").exit_code == 2


def test_title_and_plan_are_printed_only_if_the_run_begins(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(request: RunRequest, **_: object) -> Outcome:
        raise CompbenchError("this machine has 0 CUDA device(s).")

    def begun(request: RunRequest, *, begins, listener, **_: object) -> Outcome:
        begins()
        listener("fit", 1, 2)
        raise CompbenchError("the disk is full.")

    words = ("run", "--method", "factored", "--task", "shapes3d-heavy")
    monkeypatch.setattr("compbench.cli.run.run_one", refused)
    assert cli(*words).output == "compbench: this machine has 0 CUDA device(s).\n"
    monkeypatch.setattr("compbench.cli.run.run_one", begun)
    title, plan, fit, error = cli(*words).output.splitlines()
    assert title == "factored on shapes3d-heavy, quick, seed 0"
    assert plan.startswith("plan  start ")
    assert "fit 1/2" in fit
    assert error == "compbench: the disk is full."
    assert cli(*words, "--quiet").output == "compbench: the disk is full.\n"


@pytest.mark.parametrize(("preset", "source"), [("published", "built-in"), ("standard", "embedded")])
def test_what_people_call_a_preset_and_a_source_is_taken_too(preset: str, source: str) -> None:
    words = ["--method", "mono", "--task", "gmm-id", "--preset", preset, "--source", source]
    taken = main.commands["run"].make_context("run", words).params
    assert (taken["preset"], taken["source"]) == ("standard", "embedded")


def test_a_sweep_of_nothing_that_can_be_asked_for_is_wrong_usage() -> None:
    wrong, well = (RunResult("mono", "gmm-id", 0, status, "", 0.0, False, "", "") for status in ("usage", "ok"))
    assert [_exit_status(results) for results in ([wrong, wrong], [wrong, well], [well])] == [2, 1, 0]


def test_info_of_a_task_says_that_heavy_cannot_be_identified(cli) -> None:
    facts = json.loads(cli("info", "shapes3d-heavy", "--json").output)
    assert facts["coverage"] == "10/40 = 0.250"
    assert facts["C_min"] == "13/40 = 0.325"
    assert facts["components of the seen graph"] == 4
    assert facts["identified"].startswith("no")


def test_info_of_a_method_prints_bounds_and_descriptions(cli) -> None:
    output = cli("info", "slice-cfg").output
    assert "factor_dropout" in output
    assert "< 1" in output


def test_plugins_are_all_ok_here(cli) -> None:
    rows = json.loads(cli("plugins", "--json").output)
    assert {row["state"] for row in rows} == {"ok"}


def test_list_as_json_names_everything(cli) -> None:
    found = json.loads(cli("list", "--json").output)
    assert "factored" in {row["name"] for row in found["methods"]}


GRID = ("--method", "mono,factored", "--task", "shapes3d-m*,gmm-id", "--seed", "0-2", "--set", "budget.train_steps=10,20")


def test_a_dry_sweep_counts_the_runs_of_each_task(cli) -> None:
    lines = cli("sweep", *GRID, "--dry-run").output.splitlines()
    assert [line.split() for line in lines[:-2]] == [
        ["task", "preset", "methods", "settings", "seeds", "there", "missing", "hours"],
        ["shapes3d-medium", "quick", "2", "2", "3", "0", "12", "?"],
        ["gmm-id", "quick", "2", "2", "3", "0", "12", "?"],
    ]
    assert lines[-2] == "? neither a finished run here nor a published one says how long such runs take"
    assert lines[-1] == "0 of 24 runs are there; 24 missing."


def test_a_dry_sweep_takes_published_durations_where_no_run_is_finished(cli) -> None:
    lines = cli("sweep", "--method", "mono", "--task", "gmm-id", "--preset", "standard", "--seed", "0-99", "--dry-run").output
    own = sum(json.loads(EXPECTED.read_text())["gmm-id"]["standard"]["seconds"].values())
    assert lines.splitlines()[1].split()[-1] == f"{100 * own / 3600:.1f}"
    assert "?" not in lines


def test_names_and_seeds_said_again_are_added(cli) -> None:
    in_commas = "--method mono,factored --task gmm-id,gmm-ood --seed 0-2"
    said_again = "--method mono --method factored --task gmm-id --task gmm-ood --seed 0 --seed 1-2"
    asked, again = (json.loads(cli("sweep", *words.split(), "--dry-run", "--json").stdout) for words in (in_commas, said_again))
    assert len(asked) == 12
    assert asked == again


def test_a_dry_sweep_says_what_the_missing_runs_may_take_by_those_of_their_method_or_task(cli, tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    for seed, seconds in enumerate((1800, 3600, 36000)):
        store.write(record(method="mono", task="gmm-id", seed=seed + 5, more={"seconds": seconds}))
    grid = ("--method", "mono,factored", "--task", "gmm-id", "--seed", "0-1", "--dry-run")
    lines = cli("sweep", *grid).output.splitlines()
    assert lines[1].split() == ["gmm-id", "quick", "2", "1", "2", "0", "4", "4.0"]
    assert lines[-1] == "0 of 4 runs are there; 4 missing: 4.0 hours, one after another."
    lines = cli("sweep", *grid, "--preset", "smoke").output.splitlines()
    assert lines[1].split()[-1] == "?"


def test_a_dry_sweep_as_json_is_each_run_in_order_and_says_which_is_there(cli, tmp_path: Path, monkeypatch) -> None:
    done = record(seed=1, method="mono", task="gmm-id", preset="smoke")
    Store(tmp_path / "records").write(done)
    known = [[["0" * 64]], [[done.identity]]]
    monkeypatch.setattr("compbench.sweep.matrix.RunFacts.identities", lambda own, requests, elsewhere, pass_over: known)
    said = cli(
        "sweep", "--method", "mono", "--task", "gmm-id", "--seed", "0-1", "--preset", "smoke", "--dry-run", "--json"
    ).output
    rows = json.loads(said.splitlines()[0])
    assert rows[0] == {
        "method": "mono",
        "task": "gmm-id",
        "seed": 0,
        "preset": "smoke",
        "overrides": {},
        "identity": "0" * 64,
        "there": False,
        "seconds": done.seconds,
    }
    assert [(row["seed"], row["there"]) for row in rows] == [(0, False), (1, True)]
    assert said.splitlines()[-1] == "1 of 2 runs are there; 1 missing: 0.0 hours, one after another."


def test_method_and_task_leave_a_part_of_a_file_with_all_that_the_file_asks_for(cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[standard]]\nmethods = "mono,factored"\ntasks = "gmm-id,gmm-ood"\nseeds = "0-2"\nprecision = "bf16"\n'
        '[[standard]]\nmethods = "mono"\ntasks = "shapes3d-light"\n'
    )
    grid = ("sweep", "--file", str(path), "--method", "f*,mono", "--task", "gmm-ood", "--dry-run")
    said = cli(*grid).output.splitlines()
    assert [line.split()[:5] for line in said[1:-1]] == [["gmm-ood", "standard", "2", "1", "3"]]
    own = {row["identity"] for row in json.loads(cli(*grid, "--json").output.splitlines()[0])}
    alone = ("sweep", "--method", "factored,mono", "--task", "gmm-ood", "--seed", "0-2", "--preset", "standard", "--dry-run")
    assert own == {row["identity"] for row in json.loads(cli(*alone, "--json", "--precision", "bf16").output.splitlines()[0])}
    wrong = cli("sweep", "--file", str(path), "--method", "factored", "--task", "shapes3d-light", "--dry-run")
    assert (wrong.exit_code, "has --method factored and --task shapes3d-light" in wrong.output) == (2, True)


def test_a_grid_of_any_device_asks_for_no_run_that_is_there_from_another_one(cli, tmp_path: Path, monkeypatch) -> None:
    def dies(*_, **__):
        raise CompbenchError("it died.")

    home = tmp_path / "elsewhere"
    asked = RunRequest(method="mono", task="gmm-id", preset="smoke", device="cpu", home=str(home))
    (tmp_path / "folder").mkdir()
    there = Resolver(tmp_path / "folder").spec(asked, "NVIDIA H200")
    Store(tmp_path / "records").write(record(more={"spec": there, "identity": there.identity}))
    path = tmp_path / "mine.toml"
    path.write_text('[[smoke]]\nmethods = "mono"\ntasks = "gmm-id"\nseeds = "0"\nany_device = true\n')
    words = ("sweep", "--file", str(path), "--preset", "smoke", "--device", "cpu")
    said = "1 of 1 runs are there, 1 of them on NVIDIA H200; 0 missing."
    assert cli(*words, "--dry-run").output.splitlines()[-1] == said
    done = cli(*words)
    assert done.output.splitlines()[-1] == "Nothing is missing."
    (result,) = json.loads(cli(*words, "--json").output)
    assert (result["status"], result["reused"]) == ("ok", True)
    assert len(list((tmp_path / "records").glob("*.json"))) == 1
    mine = path.read_text()
    path.write_text(f"{mine}set = {{ nonsense = 3 }}\n{mine}")  # as a task whose extra is not here: it must not hide the others
    done = cli(*words)
    assert done.exit_code == 2
    assert "nonsense" in done.output
    assert "ok (had been run)" in done.output
    path.write_text(f"{mine}set = {{ nonsense = 3 }}\n")
    with monkeypatch.context() as patch:
        patch.setattr("compbench.sweep.matrix.RunFacts.identities", dies)
        said = cli(*words).output.splitlines()[0]
    assert said == "compbench: existing runs could not be found in advance: it died."
    path.write_text(mine.replace("any_device = true", ""))
    assert cli(*words, "--dry-run").output.splitlines()[-1].startswith("0 of 1 runs are there; 1 missing")


def test_a_run_of_this_machine_counts_for_a_cluster_only_if_its_jobs_have_the_same_kind_of_device(
    cli, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    asked = RunRequest(method="mono", task="gmm-id", preset="smoke", home=str(tmp_path / "elsewhere"))
    (tmp_path / "folder").mkdir()
    there = Resolver(tmp_path / "folder").spec(asked, "cpu")
    Store(tmp_path / "records").write(record(more={"spec": there, "identity": there.identity}))
    words = ("sweep", "--method", "mono", "--task", "gmm-id", "--preset", "smoke", "--executor", "slurm", "--dry-run")

    def number_there(*more: str) -> str:
        return cli(*words, *more).output.splitlines()[-1].split()[0]

    assert number_there() == "1"
    assert number_there("--executor-set", "gpus=1") == "0"
    assert number_there("--executor-set", "gpus=1", "--device", "cpu") == "1"
    path = tmp_path / "mine.toml"
    path.write_text('[[smoke]]\nmethods = "mono"\ntasks = "gmm-id"\nseeds = "0"\nany_device = true\n')
    grid = ("sweep", "--file", str(path), "--preset", "smoke", "--executor", "slurm", "--executor-set", "gpus=1", "--dry-run")
    assert cli(*grid).output.splitlines()[-1].split()[0] == "1"


def test_a_rerun_of_a_finished_sweep_asks_no_executor_and_starts_no_run(cli, tmp_path: Path, monkeypatch) -> None:
    asked = [
        RunRequest(method="mono", task="gmm-id", preset="smoke", device="cpu", seed=seed, home=str(tmp_path)) for seed in (0, 1)
    ]
    (tmp_path / "folder").mkdir()
    resolver = Resolver(tmp_path / "folder")
    for spec in map(resolver.spec, asked):
        Store(tmp_path / "records").write(record(more={"spec": spec, "identity": spec.identity}))
    monkeypatch.setattr("compbench.sweep.pool._Pool.__init__", lambda *_: pytest.fail("an executor was asked"))
    words = ("sweep", "--method", "mono", "--task", "gmm-id", "--seed", "0-1", "--preset", "smoke", "--device", "cpu")
    done = cli(*words, "--json")
    assert done.exit_code == 0
    assert [(one["seed"], one["reused"]) for one in json.loads(done.output)] == [(0, True), (1, True)]
    assert not (tmp_path / "board").exists()


def test_a_dry_sweep_of_a_file_is_of_the_one_preset_that_it_has(cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("".join(f'[[{preset}]]\nmethods = "mono"\ntasks = "gmm-id"\n' for preset in ("smoke", "standard")))
    assert cli("sweep", "--file", str(path), "--dry-run").output.splitlines()[1].split()[:2] == ["gmm-id", "standard"]


@pytest.mark.parametrize(
    ("cards", "words", "asked"),
    [
        (0, (), ["gmm-id"]),
        (1, (), ["gmm-id", "mpi3d-medium"]),
        (1, ("--device", "cpu"), ["gmm-id"]),
        (0, ("--executor", "slurm"), ["gmm-id", "mpi3d-medium"]),
        (0, ("--executor", "slurm", "--device", "cpu"), ["gmm-id"]),
    ],
)
def test_a_grid_that_needs_a_gpu_is_left_out_where_there_is_none(cli, tmp_path: Path, monkeypatch, cards, words, asked) -> None:
    monkeypatch.setattr("compbench.sweep.pool._num_cards", lambda: cards)
    monkeypatch.setattr(
        "compbench.sweep.matrix.RunFacts.identities",
        lambda own, requests, elsewhere, pass_over: [[("0" * 64,)] for _ in requests],
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[standard]]\nmethods = "mono"\ntasks = "gmm-id"\n[[standard]]\nmethods = "mono"\ntasks = "mpi3d-medium"\ngpu = true\n'
    )
    said = cli("sweep", "--file", str(path), "--dry-run", *words).output.splitlines()
    assert sorted(line.split()[0] for line in said if " standard " in line and "compbench:" not in line) == asked
    left_out = "compbench: no GPU here, so tasks that need one at --preset standard are left out: mpi3d-medium."
    assert (left_out in said) == (len(asked) == 1)


def test_a_sweep_of_what_needs_a_gpu_alone_is_refused_without_one(cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[standard]]\nmethods = "mono"\ntasks = "mpi3d-medium"\ngpu = true\n')
    done = cli("sweep", "--file", str(path), "--device", "cpu")
    assert (done.exit_code, done.output) == (2, "compbench: every grid needs a GPU (mpi3d-medium), and there is none here.\n")


def test_show_lists_shows_and_names_a_bad_record(cli, tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    path = store.write(record())
    (tmp_path / "records" / "bad.json").write_text("{")
    assert path.name in cli("show").output
    assert "heldout_accuracy" in cli("show", record().identity[:12]).output
    bad = cli("show", "bad")
    assert bad.exit_code == 2
    assert "is not JSON" in bad.output


def test_board_writes_pages_and_check_tells_when_they_are_stale(cli, tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    store.write(record())
    assert cli("board").exit_code == 0
    assert cli("board", "--check").exit_code == 0
    store.write(record(seed=1))
    stale = cli("board", "--check")
    assert stale.exit_code == 1
    assert "stale" in stale.output


def test_data_list_and_path_work_without_data(cli, tmp_path: Path) -> None:
    assert "0 of 1" in cli("data", "list").output
    assert cli("data", "path").output.strip() == str(tmp_path / "data")


def test_a_setting_of_several_types_is_refused_under_its_own_name() -> None:
    found = CliRunner().invoke(main, ["run", "--method", "fkc", "--task", "gmm-id", "--set", "g_clip=0", "--preset", "smoke"])
    assert found.exit_code == 2
    assert "--set g_clip=0: it takes 0 < number or auto or off (" in found.output


def test_a_board_of_many_records_is_rebuilt_only_after_work_that_took_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compbench.cli.options.FEW_RECORDS", 2)
    store = Store(tmp_path / "records")
    for seed in range(2):
        store.write(record(seed=seed))
    assert any(page.name == "index.html" for page in rebuild_board(tmp_path))
    store.write(record(seed=2))
    assert rebuild_board(tmp_path, seconds=0.02) == ()
    assert capsys.readouterr().err == "compbench: the board of 3 records was left as it was; `compbench board` rebuilds it.\n"
    assert any(page.name == "index.html" for page in rebuild_board(tmp_path, seconds=0.03))


@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_the_work_that_a_board_is_weighed_against_is_that_of_runs_that_were_done_now(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    worked = []
    path = tmp_path / "one.json"

    def run(request: RunRequest, **_: object) -> Outcome:
        return Outcome(record(seed=request.seed, more={"seconds": 10.0}), path, reused=request.seed == 1)

    monkeypatch.setattr("compbench.cli.run.run_one", run)
    monkeypatch.setattr("compbench.sweep.pool.run", run)
    monkeypatch.setattr(f"compbench.cli.{verb}.rebuild_board", lambda home, seconds: worked.append(seconds) or ())
    cli(verb, "--method", "mono", "--task", "gmm-id", "--seed", "0-2", "--preset", "smoke", "--device", "cpu", "--quiet")
    assert worked == [20.0]


def test_a_folder_of_records_that_may_not_be_listed_is_one_line_and_loses_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("compbench.store.records.os.listdir", refuse)
    assert rebuild_board(tmp_path) == ()  # a sweep shows its table next
    said = capsys.readouterr().err
    assert said.startswith("compbench: the board was not updated: ")
    assert (said.count("\n"), "Permission denied" in said) == (1, True)
