#!/usr/bin/env bash
# Lint and the whole fast test suite, in an environment of its own (.venv). Arguments go to pytest, say `-m slow`.
set -euo pipefail
extras=test
. "$(dirname "$0")/environment.sh"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
# Python writes bytecode even where the environment forbids it: hundreds of processes would compile the same files.
unset PYTHONDONTWRITEBYTECODE
# Files that tests write stay in memory if there is room: runs save often, and a disk makes each save wait.
if [ -w /dev/shm ] && [ "$(df -Pk /dev/shm | awk 'NR == 2 {print $4}')" -gt 4000000 ]; then
    export PYTEST_DEBUG_TEMPROOT=${PYTEST_DEBUG_TEMPROOT:-/dev/shm}
fi
if [ $# -eq 0 ]; then
    set -- -m "not slow"
fi
.venv/bin/python -m pytest -q "$@"
