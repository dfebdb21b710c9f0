"""Several networks of one architecture as one module: their weights are stacked, and one call evaluates all of them.

A mixture needs n experts at the same points in every solver step; here they cost one batched call instead of n.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from compbench.flow.memory import in_parts, rows_at_once

if TYPE_CHECKING:
    from compbench.flow.nets import VelocityNet

State = dict[str, Tensor]


class Experts(nn.Module):
    """n networks v_a(x_t, t | c) with stacked weights (n, ...), frozen.

    Args:
        template: a network of the experts' architecture; its weights do not matter.
        states: a state dict for each expert.
    """

    def __init__(self, template: VelocityNet, states: Sequence[Mapping[str, Tensor]]) -> None:
        super().__init__()
        # Not a submodule, because its weights are not used.  In a tuple it stays out of state_dict() and parameters().
        self._template = (copy.deepcopy(template).requires_grad_(False).eval(),)
        self._names = list(template.state_dict())  # in the template's order, so that the order within `states` does not matter
        learnt = {name for name, _ in template.named_parameters()}
        for index, name in enumerate(self._names):
            stack = torch.stack([state[name].detach() for state in states])
            if name in learnt:  # a parameter, so that counts of parameters include every expert
                self.register_parameter(f"stack{index}", nn.Parameter(stack, requires_grad=False))
            else:
                self.register_buffer(f"stack{index}", stack)

    def __len__(self) -> int:
        return len(self.stacks[self._names[0]])

    @property
    def template(self) -> VelocityNet:
        """A network of the experts' architecture; its weights do not matter."""
        return self._template[0]

    @property
    def stacks(self) -> dict[str, Tensor]:
        """Weights by name, (n, ...) each."""
        return {name: getattr(self, f"stack{index}") for index, name in enumerate(self._names)}

    def state(self, expert: int) -> dict[str, Tensor]:
        """One expert's own state dict."""
        return {name: stack[expert] for name, stack in self.stacks.items()}

    def forward(self, x_t: Tensor, t: Tensor, conditions: Tensor, *, own_points: bool = False) -> Tensor:
        """v_a(x_t, t | c_a), with separate conditions for each expert.

        Args:
            x_t: points, (B, *D) if all experts share them, or (n, B, *D) with `own_points`.
            t: times, (B,).
            conditions: (n, K, B, F), K conditions for each expert.
            own_points: whether each expert has its own points.

        Returns:
            velocities, (n, K, B, *D).
        """
        stacked = _Stacked(self._template[0])

        def one(state: State, x: Tensor, asked: Tensor) -> Tensor:
            return functional_call(stacked, state, (x, t, asked))

        state = {f"net.{name}": stack for name, stack in self.stacks.items()}
        return torch.vmap(one, in_dims=(0, 0 if own_points else None, 0))(state, x_t, conditions)

    def everywhere(self, x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        """v_a(x_t, t | c_k) of every expert for K conditions: (B, *D), (B,), (K, B, F) -> (n, K, B, *D)."""

        def all_of(x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
            return self(x_t, t, conditions.expand(len(self), *conditions.shape))

        size = rows_at_once(self._template[0], len(self) * len(conditions))
        return in_parts(all_of, size, x_t, t, conditions, dim=2)

    def chosen(self, indices: Tensor) -> Experts:
        """The experts at some indices (R,), with repetitions, as R experts; weights are gathered on the device."""
        view = copy.copy(self)
        # Gathered weights are not parameters: plain tensors replace the module's parameters and buffers.
        view._parameters = {name: stack.index_select(0, indices) for name, stack in self._parameters.items()}  # type: ignore[misc, union-attr]
        view._buffers = {name: stack.index_select(0, indices) for name, stack in self._buffers.items()}  # type: ignore[union-attr]
        return view

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Experts:
        self._template = (self._template[0]._apply(fn),)
        return super()._apply(fn, recurse)


def at_shared_points(experts: Experts) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`Experts.forward` for points (B, *D) shared by all experts, in a form that a compiler can follow: it creates no module."""
    stacked = _Stacked(experts.template)

    def one(state: State, x_t: Tensor, t: Tensor, asked: Tensor) -> Tensor:
        return functional_call(stacked, state, (x_t, t, asked))

    def forward(x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        state = {f"net.{name}": stack for name, stack in experts.stacks.items()}
        return torch.vmap(one, in_dims=(0, None, None, 0))(state, x_t, t, conditions)

    return forward


class _Stacked(nn.Module):
    """A velocity network's `stacked` as a forward, which `functional_call` needs."""

    def __init__(self, net: VelocityNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        return self.net.stacked(x_t, t, conditions)
