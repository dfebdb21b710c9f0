from functools import partial

import pytest
import torch

from compbench.api.context import Context, NoCheckpoints
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem
from compbench.data.bumps import TableSilo
from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import CNNDecoder, MLPDecoder, PixelDecoder, TransformerDecoder, condition_decoder, regress
from compbench.system.errors import CompbenchError
from compbench.system.profiling import num_parameters

SPACE = FactorSpace([Factor("x", 4), Factor("y", 4)])


def test_cnn_and_mlp_have_the_repositorys_number_of_parameters() -> None:
    for num_hidden, parameters in ((2, 307_457), (3, 344_385), (4, 381_313)):
        assert num_parameters(CNNDecoder(56, (1, 28, 28), channels=64, num_hidden=num_hidden)) == parameters
    assert num_parameters(MLPDecoder(56, (1, 28, 28), width=256, depth=3)) == 347_664


@pytest.mark.parametrize("shape", [(1, 14, 14), (3, 16, 12)])
def test_decoders_give_images_of_the_asked_shape(shape) -> None:
    code = torch.randn(5, 6)
    for decoder in (
        CNNDecoder(6, shape, channels=8, num_hidden=3),
        MLPDecoder(6, shape, width=8, depth=2),
        TransformerDecoder(6, shape, width=8, depth=1, num_heads=2, patch=2, dropout=0.0),
        PixelDecoder(6, shape, width=8, depth=2),
    ):
        assert decoder(code).shape == (5, *shape)


def test_a_pixel_of_the_pixel_decoder_depends_on_its_place_alone() -> None:
    """Pixels share one function: with every place moved by one column, the image moves by one column."""
    decoder = PixelDecoder(6, (1, 8, 8), width=8, depth=2)
    code = torch.randn(2, 6)
    before = decoder(code)
    decoder.place = decoder.place.unflatten(0, (8, 8)).roll(1, 1).flatten(0, 1)
    torch.testing.assert_close(decoder(code), before.roll(1, 3))


def test_a_patch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CompbenchError, match="patch 4 does not divide images of 14 x 14"):
        TransformerDecoder(6, (1, 14, 14), width=8, depth=1, num_heads=2, patch=4, dropout=0.0)


def test_a_rate_factor_is_a_learning_rate() -> None:
    condition = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    silo = TableSilo("noise", torch.randn(16, 1, 4, 4), condition)
    fitted = []
    for rate, factor in ((3e-3, 1.0), (1e-3, 3.0), (1e-3, 1.0)):
        budget = Budget(train_steps=5, batch_size=8, width=4, learning_rate=rate, sample_steps=1)
        asked = Problem(SPACE, Event("image", (1, 4, 4)), Federation([silo]), budget, Holdout.empty(SPACE), deterministic=True)
        torch.manual_seed(0)
        net = condition_decoder(asked, CodeSettings(), partial(MLPDecoder, width=8, depth=1))
        ctx = Context(torch.device("cpu"), "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
        regress(net, silo, asked, ctx, rate_factor=factor)
        fitted.append(net(condition).detach())
    torch.testing.assert_close(fitted[0], fitted[1])
    assert not torch.allclose(fitted[0], fitted[2], atol=1e-4)
