"""The same jobs on a Dask cluster.

connect      the name of a cluster → an open cluster, of a scheduler or on this machine
run_job      a job → the outcome of each item: tasks of several items, retries, suspects tried alone
worker       what runs in the process of a worker
batch_files  a command → a batch file for SLURM or PBS
"""

from callshot.distributed.connect import DaskCluster, open_cluster

__all__ = ["DaskCluster", "open_cluster"]
