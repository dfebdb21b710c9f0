"""Check the contract in a plugin's own tests.

from compbench.testing import check_method

def test_method_keeps_the_contract() -> None:
    check_method("my-method")  # an installed method runs in a separate process, which may hang or crash
    check_method(method)  # a Method object runs in this process, so that a debugger stops in it
"""

from __future__ import annotations

from collections.abc import Sequence

from compbench.api.interfaces import Method
from compbench.registry.registry import Registry
from compbench.testing.outside import check
from compbench.testing.verdicts import Report


class ContractBroken(AssertionError):
    """The broken clauses of a method, one line per finding; `report` has all findings."""

    def __init__(self, report: Report) -> None:
        self.report = report
        lines = [f"{finding.title}: {finding.message}" for finding in report.failures] or ["nothing was checked"]
        super().__init__(f"'{report.method}' breaks the contract.\n" + "\n".join(lines))


def check_method(method: Method | str, *, only: Sequence[str] = (), device: str = "cpu", time_limit: float = 600.0) -> Report:
    """Check that a method keeps the contract (`compbench check`).

    Args:
        method: a Method, or the name of an installed one.
        only: names of checks; () means all.
        device: auto (the CPU, then the first GPU if there is one), cpu, cuda or cuda:N.
        time_limit: seconds for all checks of an installed method; a Method object has no limit.

    Returns:
        the report, if nothing failed.

    Raises:
        ContractBroken: something failed.
        CompbenchError: the method, check or device does not exist.
    """
    if isinstance(method, str):
        report = check(Registry().entry("methods", method).name, only=only, device=device, time_limit=time_limit)
    else:
        from compbench.testing.examine import report_on

        report = report_on(method, only=only, device=device)
    if not report.ok:
        raise ContractBroken(report)
    return report
