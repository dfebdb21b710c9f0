"""One run: from a request to a record.  The package can be called: `compbench.run(method, task)` (`run.from_python`)."""

import importlib
import sys
from types import ModuleType


class _CallableRoom(ModuleType):
    """This package, which shares its name with the function of notebooks."""

    def __call__(self, *arguments: object, **settings: object) -> object:
        return importlib.import_module("compbench.notebook.from_python").run(*arguments, **settings)


sys.modules[__name__].__class__ = _CallableRoom
