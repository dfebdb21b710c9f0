import json
import os

import pytest
from click.testing import CliRunner
from support.sample_records import record as made

from compbench.api.schemas import Profile
from compbench.cli.main import main
from compbench.store.records import Store

SMALL = ["--set", "task.size=8", "--set", "task.first=3", "--set", "task.last=5", "--set", "budget.train_steps=3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a decoder's and a velocity network's run on 8 x 8 bumps."""
    root = tmp_path_factory.mktemp("home")
    before = os.environ.get("COMPBENCH_HOME")
    os.environ["COMPBENCH_HOME"] = str(root)
    for method in ("low-rank", "factored"):
        words = ["run", "--method", method, "--task", "bump-corner", "--preset", "smoke", "--in-process", "--quiet", *SMALL]
        found = CliRunner().invoke(main, [*words, "--device", "cpu"])
        assert found.exit_code == 0, found.output
    yield root
    os.environ.pop("COMPBENCH_HOME") if before is None else os.environ.__setitem__("COMPBENCH_HOME", before)


def record(home, method: str):
    (path,) = home.glob(f"records/*.{method}.*.json")
    return path


def invoke(*words: object):
    return CliRunner().invoke(main, ["diagnose", *map(str, words)])


@pytest.fixture(scope="module")
def said(home) -> dict[str, str]:
    """What `compbench diagnose` prints of each of the two runs."""
    done = {method: invoke(record(home, method)) for method in ("low-rank", "factored")}
    assert [found.exit_code for found in done.values()] == [0, 0], [found.output for found in done.values()]
    return {method: found.output for method, found in done.items()}


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(("method", "derivative"), [("low-rank", "jvp"), ("factored", "differences")])
def test_diagnose_writes_figures_numbers_and_a_page_beside_the_run(home, method: str, derivative: str) -> None:
    identity = json.loads(record(home, method).read_text())["identity"]
    folder = home / "runs" / identity / "diagnostics"
    page = (folder / "index.html").read_text()
    for figure in ("landscape", "kernels", "layers", "units", "samples"):
        assert (folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert f'src="{figure}.png"' in page
    found = json.loads((folder / "diagnostics.json").read_text())
    assert found["derivative"] == derivative
    assert found["scores"]["exact superposition"]["superposition"] == pytest.approx(1)
    assert all(0.5 <= layer["factorisation"]["ratio"] <= 1 for layer in found["layers"])
    assert (len(found["effective_rank"]) == 2) == (method == "low-rank")
    if method == "low-rank":
        assert len(found["layers"]) >= 3
        assert all(1 <= rank <= 8 for ranks in found["effective_rank"].values() for rank in ranks)


def test_diagnose_gives_the_records_own_superposition_score(home, said: dict[str, str]) -> None:
    scores = {score["name"]: score["value"] for score in json.loads(record(home, "low-rank").read_text())["scores"]}
    assert f"model: superposition {scores['heldout_superposition']:.3f}" in said["low-rank"]


EXPERTS = '''"""An answer without a network that is called: a stand-in for mixtures of experts."""

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Method, MethodSettings
from torch import nn

class Settings(MethodSettings): ...

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1, 1)

def build(settings, problem):
    return Experts()

def fit(settings, problem, ctx):
    return build(settings, problem)

def sample(settings, model, request, ctx):
    return request.x0 * (1 + request.condition.sum(1)).view(-1, *[1] * (request.x0.ndim - 1))

@hookimpl
def compbench_methods():
    return (Method(name="experts", settings=Settings, fit=fit, sample=sample, build=build),)
'''


def test_outputs_are_diagnosed_where_the_layers_cannot_be_had(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    plugin = tmp_path / "experts.py"
    plugin.write_text(EXPERTS)
    words = [
        "run",
        "--method",
        "experts",
        "--plugin",
        str(plugin),
        "--task",
        "bump-corner",
        "--preset",
        "smoke",
        "--device",
        "cpu",
    ]
    ran = CliRunner().invoke(main, [*words, "--in-process", "--quiet", *SMALL])
    assert ran.exit_code == 0, ran.output
    done = invoke(record(tmp_path / "home", "experts"), "--plugin", plugin, "--output", tmp_path / "page")
    assert done.exit_code == 0, done.output
    assert "model: superposition" in done.output
    said = "the layers of 'experts' are not available: its model is called neither as model(x_t, t, condition)"
    assert [said in line for line in done.output.splitlines()].count(True) == 1
    assert json.loads((tmp_path / "page" / "diagnostics.json").read_text())["layers"] == []
    assert {path.stem for path in (tmp_path / "page").glob("*.png")} == {"landscape", "kernels", "samples"}
    assert "are not available" in (tmp_path / "page" / "index.html").read_text()


def test_forward_mode_is_refused_for_a_model_of_integer_conditions(home) -> None:
    done = invoke(record(home, "factored"), "--derivative", "jvp")
    assert done.exit_code == 2
    assert "the model of 'factored' is not differentiable in its condition" in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_weights_are_one_line(home, tmp_path, monkeypatch) -> None:
    stray = record(home, "low-rank")
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))  # a home without this run
    done = invoke(stray)
    assert done.exit_code == 2
    assert "the weights of this run are not at" in done.stderr
    assert "--force" in done.stderr


def test_a_grid_of_one_factor_is_refused(home) -> None:
    done = invoke(record(home, "low-rank"), "--factors", "x,x")
    assert done.exit_code == 2
    assert "--factors A,B" in done.stderr


def test_outputs_of_a_stochastic_task_are_compared_without_what_they_share(home) -> None:
    """Additive main effects on a bright background are an exact superposition; an interaction is not."""
    from types import SimpleNamespace

    import torch

    from compbench.diagnose.diagnosis import diagnose
    from compbench.diagnose.trained_model import LayerGeometry

    generator = torch.Generator().manual_seed(0)
    x, y, both = (torch.randn(shape, generator=generator) for shape in ((4, 1, 30), (1, 5, 30), (4, 5, 30)))
    heldout = torch.zeros(4, 5, dtype=torch.bool)
    heldout[3, 4] = True
    scores = []
    for interaction in (0.0, 3.0):
        outputs = (50 + x + y + interaction * both).flatten(0, 1)
        inside = LayerGeometry({}, {}, "differences")
        subject = SimpleNamespace(
            sizes=(4, 5),
            heldout=heldout,
            grid=torch.zeros(20, 2),
            task=SimpleNamespace(truth=None),
            model=torch.nn.Identity(),
            outputs=lambda outputs=outputs: outputs,
            inside=lambda derivative, inside=inside: inside,
        )
        found = diagnose(subject)
        assert found.why_no_layers == "no layer of the model depends on the condition."
        scores.append(found.scores["model"].superposition)
    assert scores[0] > 0.95
    assert scores[1] < 0.6


@pytest.mark.parametrize(
    ("more", "said"),
    [({"samples_only": True}, "holds samples only: compbench saw no training"), ({}, "the model of 'constant' is not a network")],
)
def test_a_record_without_weights_is_not_said_to_lack_them_here(tmp_path, more: dict, said: str) -> None:
    path = Store(tmp_path).write(made(method="constant", more={"profile": Profile(parameters=None), **more}))
    done = invoke(path)
    assert (done.exit_code, said in done.stderr, "--force" in done.stderr) == (2, True, False), done.output
