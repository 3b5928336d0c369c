"""Many independent computations: one after the other, in threads, in local processes, or on a Dask cluster."""

from relpref.parallel.run import FORMS, Scheduler, run_all

__all__ = ["FORMS", "Scheduler", "run_all"]
