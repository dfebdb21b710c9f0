"""`pytest --compbench NAME`: the contract of an installed method, one test per clause, next to a plugin's own tests.

The method is checked in a separate process when the first of these tests runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr, TracebackStyle

    from compbench.testing.verdicts import Finding, Report


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compbench")
    group.addoption("--compbench", action="append", default=[], metavar="NAME", help="check that a method keeps the contract")
    group.addoption("--compbench-device", default="auto", help="auto, cpu, cuda or cuda:N")
    group.addoption("--compbench-time-limit", type=float, default=600.0, help="seconds for all checks of a method")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each clause of each requested method."""
    for name in config.getoption("compbench"):
        collector = Contract.from_parent(session, name=name, nodeid=f"compbench::{name}")
        items.extend(collector.collect())


class Contract(pytest.Collector):
    """The clauses of one method; the report is made once."""

    _report: Report | None = None

    def collect(self) -> Iterator[pytest.Item]:
        from compbench.registry.registry import Registry
        from compbench.testing.verdicts import CHECKS

        try:
            Registry().entry("methods", self.name)
        except CompbenchError as error:
            raise pytest.UsageError(f"--compbench {self.name}: {error}") from error
        for check in CHECKS:
            yield ClauseItem.from_parent(self, name=check)

    @property
    def report(self) -> Report:
        if self._report is None:
            from compbench.testing.outside import check

            options = self.config.getoption
            chosen = [item.name for item in self.session.items if item.parent is self]
            self._report = check(
                self.name,
                only=chosen,
                device=options("--compbench-device"),
                time_limit=options("--compbench-time-limit"),
            )
        return self._report


class ClauseItem(pytest.Item):
    """One clause on all problems.  A crash or a timeout fails the clauses that had not been checked."""

    def runtest(self) -> None:
        assert isinstance(self.parent, Contract)
        report = self.parent.report
        own = [finding for finding in report.findings if finding.check == self.name]
        broken = [finding for finding in own if finding.status == "failed"]
        if not any(finding.status == "ok" for finding in own):
            broken += [finding for finding in report.failures if finding.check in ("loads", "time", "process")]
        if broken:
            raise ClauseBroken(broken)
        if not any(finding.status == "ok" for finding in own):
            pytest.skip(own[0].found if own else "not checked: see the clauses that failed")

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: TracebackStyle | None = None
    ) -> str | TerminalRepr:
        if isinstance(excinfo.value, ClauseBroken):
            return "\n".join(f"{finding.title}: {finding.message}" for finding in excinfo.value.findings)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.nodeid}"


class ClauseBroken(AssertionError):
    """The findings of one broken clause."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__(findings[0].message)
        self.findings = findings
