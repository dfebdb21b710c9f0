"""One run: from a request to a record.  The package can be called: `compbench.run(method, task)` (`run.from_python`)."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    """This package, which shares its name with the function of notebooks."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return importlib.import_module("compbench.run.from_python").run(*arguments, **settings)


sys.modules[__name__].__class__ = _CallableRoom
