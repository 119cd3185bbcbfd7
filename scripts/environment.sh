# Sourced by the other scripts: makes .venv with the package and its requirements at pinned versions, or reuses it.
# `extras` names further requirements: test, or nothing. PYTHON names the interpreter to make it with (3.10 or newer).
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -z "${PYTHON:-}" ]; then
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            PYTHON=$candidate
            break
        fi
    done
fi
if [ -z "${PYTHON:-}" ]; then
    echo "Python 3.10 or newer is needed; install it, or name it: PYTHON=/path/to/python $0" >&2
    exit 1
fi
extras=${extras:-}
wanted=$(cat pyproject.toml constraints.txt | cksum)
case "$(cat .venv/installed 2>/dev/null)" in
"$wanted $extras" | "$wanted test") ;; # an environment for tests has everything the others need
*)
    [ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
    # An interrupt, or a Python without ensurepip, leaves an environment without pip.
    .venv/bin/python -m pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip --default-pip >/dev/null
    rm -f .venv/installed # until everything is
    echo "Installing the package${extras:+ with what its tests need} into .venv (once; ${to_install:-several minutes}) ..." >&2
    # The pip that comes with a Python may be years old; this one takes two thirds of the time.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check pip==26.3
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-compile \
        --editable ".${extras:+[$extras]}"
    # pip would compile on one core, and also a third that is hardly ever imported: tests, and the models of transformers.
    # Some packages have templates, which do not compile; an interrupt looks the same.
    trap 'exit 130' INT
    .venv/bin/python -m compileall -q -j 0 -x '/tests/|/transformers/models/' .venv/lib >/dev/null || true
    trap - INT
    echo "$wanted $extras" >.venv/installed
    ;;
esac
