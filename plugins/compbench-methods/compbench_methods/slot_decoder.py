"""One shared decoder renders each object of a picture; the front object covers the back one.

    x = 2 (a_1 g(c_1) + (1 - a_1) (a_2 g(c_2) + (1 - a_2) ground)) - 1,    (g, a) = decoder of one object's code

Wiedemer et al. 2023 (Compositional generalization from first principles): such a decoder extrapolates to pairs of objects that
it never saw together.  The first word of a factor's name is its object ("front x", "back x"); the front object comes first.

Theirs: our notes have the theorem, and neither networks nor data.
Ours: the shared decoder is the network of `cnn-decoder` in the budget's width, with colours and an opacity as outputs; the
ground is one learnt colour.
Why: some network had to be chosen, and `cnn-decoder` has this one on deterministic tasks.

Figures: this project has no copy of the paper, so none of its figures is reproduced.  That a picture is the front object over
the back one, and that the back object does not change the front layer, is tested
(`plugins/compbench-methods/tests/test_slot_decoder.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Method, Problem, Refused, hookimpl
from compbench.flow.codes import Encoding, FactorCodeSettings, encoding_of
from compbench.flow.decoders import CNNDecoder, decoder_method


class Settings(FactorCodeSettings):
    num_hidden: int = Field(2, ge=2, le=16, description="layers between stem and output; the first two double the size")


class SlotDecoder(nn.Module):
    """Conditions (B, F) -> samples (B, C, H, W): decode each object separately, then composite them.

    Args:
        slots: columns of each object's factors, front first.
        encoding: encoding of one object's factors.
        decoder: codes (B, E) -> (B, C + 1, H, W): colours and opacity before their sigmoids.
        channels: C.
    """

    def __init__(self, slots: Sequence[tuple[int, ...]], encoding: Encoding, decoder: nn.Module, channels: int) -> None:
        super().__init__()
        self.slots, self.encoding, self.decoder = tuple(slots), encoding, decoder
        self.ground = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, condition: Tensor) -> Tensor:
        codes = torch.cat(
            [self.encoding(torch.stack([condition[:, k] for k in columns], 1)) for columns in self.slots]
        )  # (S B, E)
        decoded = self.decoder(codes).float().sigmoid().unflatten(0, (len(self.slots), -1))  # (S, B, C + 1, H, W)
        image = self.ground.sigmoid().expand_as(decoded[0, :, :-1])
        for own in reversed(decoded):
            image = torch.lerp(image, own[:, :-1], own[:, -1:])
        return 2 * image - 1


def slots_of(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """The columns of each object's factors, in the order of the names' first words.

    Raises:
        Refused: the task's factors are not those of two or more objects of one kind.
    """
    words = [name.split()[0] for name in problem.space.names]
    slots = tuple(tuple(k for k, own in enumerate(words) if own == word) for word in dict.fromkeys(words))
    sizes = {tuple(problem.space.sizes[k] for k in columns) for columns in slots}
    if problem.event.kind != "image" or len(slots) < 2 or len(sizes) > 1 or len(slots[0]) < 2:
        raise Refused("this task's factors are not those of two or more objects in a picture; slot-decoder works on two-sprites.")
    return slots


def build(settings: Settings, problem: Problem) -> SlotDecoder:
    """The untrained network, of the budget's width."""
    slots = slots_of(problem)
    encoding = encoding_of([problem.space.factors[k] for k in slots[0]], settings)
    channels, *side = problem.event.shape
    decoder = CNNDecoder(
        encoding.num_outputs, (channels + 1, *side), channels=problem.budget.width, num_hidden=settings.num_hidden
    )
    return SlotDecoder(slots, encoding, decoder, channels)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("slot-decoder", Settings, build, needs=("objects",), version=2),)
