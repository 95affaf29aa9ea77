#!/bin/bash
#PBS -N callshot
#PBS -l select=@WORKERS@:ncpus=@THREADS@:mem=@TASK_MEMORY@gb@PBS_GPU@
#PBS -l walltime=@HOURS@:00:00

# A Dask scheduler, @WORKERS@ workers, and one command of callshot, which ends them all.
# Submit it in the folder that the paths of the command are relative to: qsub FILE
# After a failure submit it again: what is finished is not done again.
set -euo pipefail
cd "${PBS_O_WORKDIR:-$PWD}"

folder="$PWD/.callshot-cluster-${PBS_JOBID:-local}"
@SCHEDULER@# pbsdsh starts programs without the environment of this job.
cat >"$folder/worker.sh" <<END
export PATH="$PATH" PYTHONPATH="${PYTHONPATH:-}" DASK_CONFIG="$folder/dask"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=@THREADS@
exec "$(command -v dask)" worker --scheduler-file "$file" --nworkers 1 --no-dashboard \
    --nthreads @THREADS@ @RESOURCES@ --death-timeout 300 \
    --local-directory "\${TMPDIR:-/tmp}"
END
pbsdsh -- /bin/bash "$folder/worker.sh" >"$folder/workers.log" 2>&1 &

for _ in $(seq 600); do [ -s "$file" ] && break; sleep 0.5; done
callshot @COMMAND@ --cluster "$file"
