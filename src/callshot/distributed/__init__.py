"""The same jobs on a Dask cluster.

connect       the name of a cluster → an open cluster
local_cluster workers on this machine, closed to its other users
run_job       a job → what became of each item: a few tasks at a time, retries, suspects tried alone
job_workers   which workers there are, and which of them get tasks of a job
task_reports  the reports of tasks that have ended
worker        what runs in the process of a worker
"""

from callshot.distributed.connect import DaskCluster, open_cluster

__all__ = ["DaskCluster", "open_cluster"]
