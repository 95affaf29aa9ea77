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
file="$folder/scheduler.json"
rm -rf "$folder"
mkdir -m 700 "$folder"
trap 'kill $(jobs -p) 2>/dev/null || true; wait || true; rm -rf "$folder"' EXIT

# Dask runs the code of whoever connects: only who can read this folder has the certificate.
(umask 077 && openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=callshot \
    -keyout "$folder/key.pem" -out "$folder/certificate.pem") 2>"$folder/openssl.log" \
    || { cat "$folder/openssl.log" >&2; exit 1; }
mkdir "$folder/dask"
cat >"$folder/dask/callshot.yaml" <<END
distributed:
  comm:
    require-encryption: true
    tls:
      ca-file: "$folder/certificate.pem"
      client: &files
        cert: "$folder/certificate.pem"
        key: "$folder/key.pem"
      scheduler: *files
      worker: *files
  scheduler:
    allowed-failures: 0  # callshot itself tries again
    http: {routes: []}  # no pages: they ask nobody for a certificate
  worker:
    http: {routes: []}
    memory: {target: false, spill: false}  # nothing is read back from the shared /tmp
END
export DASK_CONFIG="$folder/dask"

dask scheduler --scheduler-file "$file" --protocol tls --port 0 \
    --no-dashboard --dashboard-address 127.0.0.1:0 >"$folder/scheduler.log" 2>&1 &
# pbsdsh starts programs without the environment of this job.
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
