"""CPU seconds of `compbench check`, one line per method, imports included; a busy machine takes more than an idle one.

python experiments/check_seconds.py                       all installed methods
python experiments/check_seconds.py cfg-plus mcmc         these
"""

from __future__ import annotations

import argparse
import resource

from compbench.registry.registry import Registry
from compbench.testing.outside import check


def cpu_seconds() -> float:
    """CPU seconds of all ended child processes of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*")
    names = parser.parse_args().methods or Registry().names("methods")
    found = {}
    for name in names:
        before = cpu_seconds()
        report = check(name, device="cpu")
        found[name] = cpu_seconds() - before
        failed = "; ".join(f"{one.check} [{one.problem}] {one.found}" for one in report.failures)
        print(f"{name:24} {found[name]:6.1f} s  {'ok' if report.ok else failed}", flush=True)
    print(f"mean of {len(found)}: {sum(found.values()) / len(found):.1f} s, most {max(found.values()):.1f} s")


if __name__ == "__main__":
    main()
