#!/bin/bash
#SBATCH --job-name=callshot
#SBATCH --ntasks=@WORKERS@
#SBATCH --cpus-per-task=@THREADS@
#SBATCH --mem-per-cpu=@MEMORY@G
#SBATCH --time=@HOURS@:00:00
#@GPU@SBATCH --gpus-per-task=1

# A Dask scheduler, @WORKERS@ workers, and one command of callshot, which ends them all.
# Submit it in the folder that the paths of the command are relative to: sbatch FILE
# After a failure submit it again: what is finished is not done again.
set -euo pipefail
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=@THREADS@

folder="$PWD/.callshot-cluster-${SLURM_JOB_ID:-local}"
@SCHEDULER@srun --ntasks=@WORKERS@ dask worker --scheduler-file "$file" --nworkers 1 --no-dashboard \
    --nthreads @THREADS@ @RESOURCES@ --death-timeout 300 \
    --local-directory "${TMPDIR:-/tmp}" >"$folder/workers.log" 2>&1 &

for _ in $(seq 600); do [ -s "$file" ] && break; sleep 0.5; done
callshot @COMMAND@ --cluster "$file"
