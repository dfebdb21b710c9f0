"""Is a plugin sound?  The contract, and its public function: `from compbench.testing import check_method`.

Modules are imported lazily, because the parent process reads this package's reports and has no torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compbench.testing.face import ContractBroken, check_method

__all__ = ["ContractBroken", "check_method"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'compbench.testing' has no attribute '{name}'")
    from compbench.testing import face

    return getattr(face, name)
