"""Many independent computations: one after the other, in threads, in local processes, or on a Dask cluster."""

from relpref.parallel.run import run_all
from relpref.parallel.scheduler import FORMS, Scheduler

__all__ = ["FORMS", "Scheduler", "run_all"]
