#!/bin/sh
# Brings docker-compose.yml up for real, on a Docker daemon and base images of its own,
# and takes everything down again. Needs root, about 12 GB of disk and 15 minutes on
# two idle cores (35 were seen on two cores with a load of 20).
#
#   tests/compose/run.sh                 everything
#   tests/compose/run.sh --without-demo  PostgreSQL and the server only: 6 GB, 5 minutes
set -eu

cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
if [ ! -x "$python" ]; then
    echo "compose-test: $python is not there; run \`make compose-test\`, which makes it, or set PYTHON" >&2
    exit 2
fi
exec "$python" -m tests.compose "$@"
