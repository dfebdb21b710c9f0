"""Counted operations against hand counts and torch's own counter."""

import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from compbench.system import profiling
from compbench.system.profiling import StepMeter, count_flops


def attention_flops(length: int, width: int) -> int:
    """Of one head's q k^T and its product with v."""
    return 2 * 2 * length * length * width


@pytest.mark.parametrize("gradients", [True, False])
def test_attention_is_counted_whatever_kernel_a_device_has_for_it(gradients: bool) -> None:
    length, width, hidden = 16, 32, 64
    layer = torch.nn.TransformerEncoderLayer(width, 4, hidden, batch_first=True).train(gradients)
    x = torch.randn(3, length, width)
    products = 2 * length * (4 * width * width + 2 * width * hidden) + attention_flops(length, width)
    with torch.set_grad_enabled(gradients):
        assert count_flops(lambda: layer(x)) == 3 * products
    assert torch.backends.mha.get_fastpath_enabled()


def test_attention_backward_costs_twice_its_forward() -> None:
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    forward = 2 * 4 * attention_flops(16, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    assert count_flops(lambda: attend(q, k, v)) == forward
    assert count_flops(lambda: attend(q, k, v).sum().backward()) == 3 * forward


def test_a_product_is_two_operations_an_entry_and_term() -> None:
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert count_flops(lambda: a @ b) == 2 * 3 * 5 * 7


def test_stacked_products_are_counted_by_their_number() -> None:
    weights, x = torch.randn(4, 5, 7), torch.randn(3, 5)
    assert count_flops(lambda: torch.vmap(lambda weight: x @ weight)(weights)) == 4 * 2 * 3 * 5 * 7


def test_forward_and_backward_of_layers_agree_with_torchs_counter() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(8 * 64, 4))
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    x, tokens = torch.randn(4, 3, 8, 8), torch.randn(2, 7, 16)

    def call() -> None:
        net(x).square().sum().backward()
        attention(tokens, tokens, tokens)[0].sum().backward()

    with FlopCounterMode(display=False) as counter:
        call()
    assert count_flops(call) == counter.get_total_flops() > 0


def test_the_gradient_of_an_energy_with_respect_to_its_input_is_counted() -> None:
    energy, x = nn.Sequential(nn.Linear(2, 8), nn.SiLU(), nn.Linear(8, 1)), torch.randn(6, 2, requires_grad=True)
    forward = 2 * 6 * (2 * 8 + 8)
    assert count_flops(lambda: torch.autograd.grad(energy(x).sum(), x)) == pytest.approx(2 * forward)


def test_steps_a_second_are_the_median_of_windows_after_the_first() -> None:
    now = iter([0.0, 1.0, 2.0, 3.0, 3.2, 4.0, 9.0, 10.0])
    meter = StepMeter(lambda: next(now))
    for done in (0, 1, 11, 21, 22, 31):  # a slow first window, then ten a second; 3.2 closes no window
        meter.step(done)
    assert (meter.rate(), meter.done) == (10.0, 31)
    meter.step(5)  # a second network begins: no window goes back
    meter.step(15)
    assert (meter.rate(), meter.done) == (10.0, 31)
    assert StepMeter().rate() is None


def test_processes_on_a_card_are_counted_by_nvml_and_none_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVML:
        nvmlInit = staticmethod(lambda: None)
        nvmlDeviceGetHandleByUUID = staticmethod(lambda uuid: uuid)
        nvmlDeviceGetComputeRunningProcesses = staticmethod(lambda handle: ["ours", "referee's", "someone's"])

    class Properties:
        uuid = "123"

    assert profiling.num_processes(torch.device("cpu")) == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert profiling.num_processes(torch.device("cuda")) == 0
    monkeypatch.setitem(sys.modules, "pynvml", NVML)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert profiling.num_processes(torch.device("cuda")) == 3


def test_a_process_measures_the_peak_once_for_each_type_and_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiling, "PEAK_SHAPES", {"cpu": ((8, 8, 8),)})
    profiling._measured_peak.cache_clear()
    cpu = torch.device("cpu")
    found = [profiling.measured_peak(cpu, kind) for kind in (torch.float32, torch.float32, torch.float64)]
    assert found[0] == found[1]
    assert min(found) > 0
    assert profiling._measured_peak.cache_info()[:2] == (1, 2)
    profiling._measured_peak.cache_clear()
