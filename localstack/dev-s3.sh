#!/usr/bin/env bash
# Starts a node whose tier is an S3 server on this machine, without Docker. Ctrl-C stops the node first, which may still
# upload, then the server. Arguments go to `varve server`.
#
#   DEV_S3_VARVE     the varve binary            (bin/varve)
#   VARVE_TOOLS_DIR  folder of versitygw         (.cache/bin, where `make tools` builds it)
#   DEV_S3_DATA      data of both                (./varve-data-s3)
#   DEV_S3_PORT      the server's port           (7070)
#
# The credentials are for laptops: the server listens on 127.0.0.1 only, and everybody can read them here.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
varve=${DEV_S3_VARVE:-$root/bin/varve}
versitygw=${VARVE_TOOLS_DIR:-$root/.cache/bin}/versitygw
data=${DEV_S3_DATA:-varve-data-s3}
port=${DEV_S3_PORT:-7070}
bucket=varve
endpoint=http://127.0.0.1:$port
export AWS_ACCESS_KEY_ID=varve-laptop AWS_SECRET_ACCESS_KEY=varve-laptop-secret AWS_EC2_METADATA_DISABLED=true
unset AWS_SESSION_TOKEN AWS_PROFILE

for tool in "$varve" "$versitygw"; do
  [ -x "$tool" ] || { echo "dev-s3: $tool is not there: run \`make build tools\`" >&2; exit 2; }
done
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
  echo "dev-s3: something listens on 127.0.0.1:$port already: stop it, or name another port in DEV_S3_PORT" >&2
  exit 1
fi

# A folder of the server's is a bucket. Metadata stands beside it, so that any file system will do.
mkdir -p "$data/s3/buckets/$bucket" "$data/s3/attributes"

set -m # each in a process group of its own: the terminal's Ctrl-C reaches this script only, which keeps the order
ROOT_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY \
  "$versitygw" --region us-east-1 --port "127.0.0.1:$port" --keep-alive --quiet posix --sidecar "$data/s3/attributes" "$data/s3/buckets" \
  </dev/null >"$data/s3/log" 2>&1 &
s3=$!
node=
stopping=
signalled=
stop_node() {
  stopping=yes signalled=yes
  if [ -n "$node" ]; then kill -TERM "$node" 2>/dev/null || true; fi
}
stop_s3() {
  kill -TERM "$s3" 2>/dev/null || true
  wait "$s3" 2>/dev/null || true
}
trap stop_node INT TERM HUP
trap stop_s3 EXIT

tries=0
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  tries=$((tries + 1))
  if [ -n "$stopping" ]; then exit 0; fi
  if ! kill -0 "$s3" 2>/dev/null || [ "$tries" -gt 200 ]; then
    echo "dev-s3: the S3 server did not start:" >&2
    cat "$data/s3/log" >&2
    exit 1
  fi
  sleep 0.1
done
echo "dev-s3: bucket $bucket at $endpoint, data in $data; AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY" >&2

"$varve" server --data "$data/node" --set "varve.tier.url=s3://$bucket/dev?endpoint=$endpoint&region=us-east-1&path-style=true" "$@" </dev/null &
node=$!
if [ -n "$stopping" ]; then stop_node; fi # Ctrl-C came just before
# A signal ends `wait` early; the node still drains then.
while :; do
  signalled= code=0
  wait "$node" || code=$?
  [ -n "$signalled" ] || break
done
exit "$code"
