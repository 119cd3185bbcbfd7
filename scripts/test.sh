#!/usr/bin/env bash
# Lint and the whole fast test suite, in an environment of its own (.venv). Arguments go to pytest, say `-m slow`.
set -euo pipefail
extras=test
. "$(dirname "$0")/environment.sh"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
if [ $# -eq 0 ]; then
    set -- -m "not slow"
fi
.venv/bin/python -m pytest -q "$@"
