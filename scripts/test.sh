#!/usr/bin/env bash
# Lint and the whole fast test suite, in an environment of its own (.venv). Arguments go to pytest, say `-m slow`.
set -euo pipefail
extras=test
. "$(dirname "$0")/environment.sh"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
export OMP_NUM_THREADS=1 # several test processes share the cores better than their threads do
if [ $# -eq 0 ]; then
    set -- -m "not slow"
fi
# Three on two cores, for some tests wait; whole files, whose tests share what is made once for them.
.venv/bin/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder "$@"
