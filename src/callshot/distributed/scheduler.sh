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
    allowed-failures: 1  # then callshot tries items alone
    http: {routes: []}  # no pages: they ask nobody for a certificate
  worker:
    http: {routes: []}
    memory: {target: false, spill: false}  # nothing is read back from the shared /tmp
END
export DASK_CONFIG="$folder/dask"

dask scheduler --scheduler-file "$file" --protocol tls --port 0 \
    --no-dashboard --dashboard-address 127.0.0.1:0 >"$folder/scheduler.log" 2>&1 &
