from compbench.errors import CompbenchError as CompbenchError
from compbench.export.table import records as records
from compbench.hookspecs import hookimpl as hookimpl
from compbench.interfaces import Batch as Batch
from compbench.interfaces import Context as Context
from compbench.interfaces import Method as Method
from compbench.interfaces import MethodSettings as MethodSettings
from compbench.interfaces import Metric as Metric
from compbench.interfaces import Problem as Problem
from compbench.interfaces import Request as Request
from compbench.interfaces import Task as Task
from compbench.notebook.from_python import run as run
from compbench.notebook.stored_model import load as load
from compbench.notebook.task_view import task as task
from compbench.schemas import Record as Record

__version__: str
