import math

import pytest
import torch
from reference.geometry import metrics_by_loop
from torch import nn

from compbench.diagnose.activations import probe_r2
from compbench.diagnose.geometry import (
    factorisation,
    metric_of,
    metrics_by_differences,
    metrics_by_jvp,
    tapped,
    that_move,
    volume,
)
from compbench.diagnose.summary import shown
from compbench.flow.codes import CodeSettings, Encoding
from compbench.flow.decoders import CNNDecoder, ConditionDecoder, MLPDecoder, PixelDecoder, TransformerDecoder

PLACES = torch.cartesian_prod(torch.arange(6), torch.arange(6))


def linear_metric(matrix: torch.Tensor):
    """The metric of c -> matrix c at five points, (P, 2)."""
    code = torch.randn(5, 2, dtype=torch.float64)
    tangents = torch.eye(2, dtype=torch.float64)[:, None].expand(2, 5, 2)
    return metrics_by_jvp(lambda c: {"out": c @ matrix.T}, code, tangents)["out"]


def test_a_separable_map_is_fully_factorised() -> None:
    metric = linear_metric(torch.tensor([[3.0, 0], [0, 1], [1, 0]], dtype=torch.float64))
    assert factorisation(metric) == pytest.approx((1, 1, 1), abs=1e-9)


def test_a_fully_mixed_map_has_one_half_and_zero_if_normalised() -> None:
    metric = linear_metric(torch.tensor([[1.0, 1], [2, 2]], dtype=torch.float64))
    assert factorisation(metric) == pytest.approx((0.5, 0.5, 0), abs=1e-9)


def test_the_volume_of_a_linear_map_is_its_determinant() -> None:
    matrix = torch.tensor([[2.0, 1], [-1, 3]], dtype=torch.float64)
    assert volume(linear_metric(matrix)).tolist() == pytest.approx([7] * 5)
    assert volume(linear_metric(torch.ones(3, 2, dtype=torch.float64))).tolist() == pytest.approx([0] * 5, abs=1e-6)


def decoders() -> dict[str, ConditionDecoder]:
    torch.manual_seed(0)
    encoding = Encoding((6, 6), CodeSettings())
    shape = (1, 8, 8)
    made = {
        "cnn": CNNDecoder(12, shape, channels=6, num_hidden=2),
        "mlp": MLPDecoder(12, shape, width=10, depth=2),
        "pixel": PixelDecoder(12, shape, width=8, depth=1),
        "transformer": TransformerDecoder(12, shape, width=8, depth=1, num_heads=2, patch=4, dropout=0.0),
    }
    return {name: ConditionDecoder(encoding, decoder).double().eval() for name, decoder in made.items()}


@pytest.mark.parametrize("name", decoders())
def test_jacobians_are_finite_differences_and_a_loop_over_points_agrees(name: str) -> None:
    model = decoders()[name]
    place = PLACES.double() + 0.3
    code = model.encoding(place)
    tangents = torch.stack([model.encoding.tangent(place, k) for k in range(2)])
    with tapped(model) as heard:

        def layers(own: torch.Tensor) -> dict[str, torch.Tensor]:
            output = model.decoder(own)
            return {**heard(len(own)), "output": output}

        found = metrics_by_jvp(layers, code, tangents, points_at_once=10)
        looped = metrics_by_loop(layers, code, tangents)
        step = 1e-6
        plus, minus = (
            [layers(model.encoding(place + sign * step * torch.eye(2, dtype=torch.float64)[k])) for k in range(2)]
            for sign in (1, -1)
        )
    assert len(found) >= 2
    for layer, metric in found.items():
        differences = [(plus[k][layer] - minus[k][layer]).detach() / (2 * step) for k in range(2)]
        for got, want, slow in zip(metric, metric_of(*differences), looped[layer], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-8)
            torch.testing.assert_close(got, slow, rtol=1e-9, atol=1e-12)


def test_differences_are_exact_for_a_linear_map_on_the_grid() -> None:
    matrix = torch.tensor([[2.0, 1], [-1, 3]], dtype=torch.float64)
    metric = metrics_by_differences({"out": PLACES.double() @ matrix.T}, (6, 6))["out"]
    assert volume(metric).tolist() == pytest.approx([7] * 36)
    assert metric.g00.tolist() == pytest.approx([5] * 36)


def test_layers_that_no_condition_reaches_are_left_out() -> None:
    still, moving = torch.zeros(36, 3), PLACES.float()
    assert list(that_move(metrics_by_differences({"still": still, "moving": moving}, (6, 6)))) == ["moving"]


def test_taps_hear_only_what_has_one_row_an_example_and_leave_no_hook() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    with tapped(model) as heard:
        model(torch.zeros(4, 2))
        assert list(heard(5)) == []
        model(torch.zeros(4, 2))
        assert {name: tuple(value.shape) for name, value in heard(4).items()} == {"1": (4, 3)}
    assert not model[1]._forward_hooks


def test_a_probe_reads_a_linear_code_everywhere_and_nothing_off_noise() -> None:
    value = PLACES[:, 0].double()
    fitted = PLACES.max(1).values < 4
    assert probe_r2(torch.stack([value, value.flip(0)], 1), value, fitted) == pytest.approx((1, 1), abs=1e-2)
    noise = torch.randn(36, 500, generator=torch.Generator().manual_seed(0))
    within, held_out = probe_r2(noise, value, fitted)
    assert within > 0.99
    assert held_out < 0.5


def test_a_probe_of_one_held_out_cell_is_undefined_and_shown_as_a_dash() -> None:
    value, fitted = PLACES[:, 0].double(), torch.ones(36, dtype=torch.bool)
    fitted[-1] = False
    within, held_out = probe_r2(torch.stack([value, value.flip(0)], 1), value, fitted)
    assert within == pytest.approx(1, abs=1e-2)
    assert math.isnan(held_out)
    assert (shown(None), shown(0.0)) == ("-", "0.000")
