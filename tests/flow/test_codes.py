import pytest
import torch

from compbench.api.factors import NULL, Factor
from compbench.flow.codes import CodeSettings, Encoding, FactorCodeSettings, encoding_of

KINDS = ("bump", "ramp", "one-hot", "positional", "circle")


def encoding(kind: str, **changes) -> Encoding:
    return Encoding((7, 5), CodeSettings(encoding=kind, **changes))


def test_codes_of_a_place_are_their_formulas() -> None:
    condition = torch.tensor([[3, 1]])
    assert encoding("one-hot")(condition)[0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0]
    assert encoding("ramp")(condition)[0].tolist() == [0.5, 0.25]
    bump = encoding("bump", code_width=2.0)(condition)[0]
    assert (bump[3].item(), bump[5].item()) == (1, pytest.approx(2.718281828**-0.5))
    positional = encoding("positional", num_frequencies=2)(torch.tensor([[0, 0]]))[0]
    assert positional.tolist() == [0, 0, 1, 1] * 2
    quarter = Encoding((8,), CodeSettings(encoding="circle"))(torch.tensor([[2]]))[0]
    assert quarter.tolist() == pytest.approx([0, 1], abs=1e-6)


def test_by_default_a_periodic_factor_is_a_circle_and_any_other_a_bump() -> None:
    mixed = Encoding((7, 8), CodeSettings(), (False, True))
    assert mixed.num_outputs == 7 + 2
    assert torch.equal(mixed(torch.tensor([[3, 2]]))[0, :7], encoding("bump")(torch.tensor([[3, 0]]))[0, :7])
    assert mixed(torch.tensor([[3, 2]]))[0, 7:].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert Encoding((8,), CodeSettings(encoding="bump"), (True,)).num_outputs == 8  # what is asked for is what is used


def test_names_are_one_hot_where_factors_are_encoded_by_what_they_are() -> None:
    factors = [Factor("place", 7), Factor("angle", 8, periodic=True), Factor("letter", 3, ("a", "b", "c"))]
    mixed = encoding_of(factors, FactorCodeSettings())
    assert mixed.num_outputs == 7 + 2 + 3
    code = mixed(torch.tensor([[3, 2, 1]]))[0]
    assert torch.equal(code[:7], encoding("bump")(torch.tensor([[3, 0]]))[0, :7])
    assert code[7:9].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert code[9:].tolist() == [0, 1, 0]
    asked = encoding_of(factors, FactorCodeSettings(encoding="bump"))  # what is asked for is what is used
    assert asked.kinds == ("bump",) * 3


def test_a_method_may_have_another_code_for_numbers() -> None:
    factors = [Factor("place", 7), Factor("letter", 3, ("a", "b", "c"))]
    assert encoding_of(factors, FactorCodeSettings(), "positional").kinds == ("positional", "one-hot")


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_factor_leaves_the_other_ones_code_alone(kind: str) -> None:
    both, one = encoding(kind)(torch.tensor([[2, 3], [2, NULL]]))
    half = {"bump": 7, "ramp": 1, "one-hot": 7, "positional": 8, "circle": 2}[kind]
    assert torch.equal(both[:half], one[:half])
    assert one[half:].unique().tolist() == [-1.0 if kind == "ramp" else 0.0]
    assert len(both) == encoding(kind).num_outputs


@pytest.mark.parametrize("kind", ["bump", "ramp", "positional", "circle"])
def test_tangents_are_the_finite_differences_of_the_code(kind: str) -> None:
    code, step = encoding(kind), 1e-6
    place = torch.tensor([[2.0, 3.0], [0.0, 4.0]], dtype=torch.float64)
    for factor in range(2):
        move = step * torch.eye(2, dtype=torch.float64)[factor]
        difference = (code(place + move) - code(place - move)) / (2 * step)
        torch.testing.assert_close(code.tangent(place, factor), difference, rtol=0, atol=1e-8)


def test_the_one_hot_tangent_is_central_inside_and_one_sided_at_the_ends() -> None:
    code = encoding("one-hot")
    assert code.tangent(torch.tensor([[3, 0]]), 0)[0, :7].tolist() == [0, 0, -0.5, 0, 0.5, 0, 0]
    assert code.tangent(torch.tensor([[0, 0]]), 0)[0, :7].tolist() == [-1, 1, 0, 0, 0, 0, 0]
