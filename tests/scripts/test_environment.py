"""scripts/environment.sh installs the requested extras, nothing more, and only once."""

import shutil
import subprocess
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[2]
# Stands in for the interpreter of .venv and records its arguments.
PYTHON = '#!/bin/sh\necho "$@" >>"$(dirname "$0")/../../told"\n'


def sourced(folder: Path, extras: str) -> list[str]:
    """What a script needing these extras tells .venv's pip to install."""
    (folder / "told").unlink(missing_ok=True)
    script = f'set -euo pipefail\nextras={extras}\n. "{folder}/scripts/environment.sh"'
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    told = (folder / "told").read_text().splitlines() if (folder / "told").exists() else []
    install = "-m pip install --quiet --disable-pip-version-check "
    return [line.removeprefix(install) for line in told if line.startswith(install)]


def test_extras_are_installed_once_and_only_on_request(tmp_path):
    for name in ("pyproject.toml", "constraints.txt", "scripts/environment.sh", "scripts/quickstart.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    package = "--constraint constraints.txt --no-compile --editable ."
    assert "extras=" not in (ROOT / "scripts" / "quickstart.sh").read_text(encoding="utf-8")
    assert "extras=test\n" in (ROOT / "scripts" / "test.sh").read_text(encoding="utf-8")
    assert sourced(tmp_path, "") == ["pip==26.3", package]
    assert sourced(tmp_path, "") == []
    assert sourced(tmp_path, "test") == ["pip==26.3", f"{package}[test]"]
    assert sourced(tmp_path, "test") == sourced(tmp_path, "") == []
    before = (tmp_path / "constraints.txt").read_text()
    (tmp_path / "constraints.txt").write_text("torch==2.12.0\n")
    python.write_text(PYTHON + 'case "$*" in *--editable*) exit 1 ;; esac\n')
    with pytest.raises(subprocess.CalledProcessError):
        sourced(tmp_path, "")
    python.write_text(PYTHON)
    (tmp_path / "constraints.txt").write_text(before)  # what is installed may fit neither
    assert sourced(tmp_path, "") == ["pip==26.3", package]
    # An environment that was interrupted before it had pip gets it.
    python.write_text(PYTHON + 'case "$*" in "-m pip --version") exit 1 ;; esac\n')
    (tmp_path / ".venv" / "installed").unlink()
    assert sourced(tmp_path, "") == ["pip==26.3", package]
    assert "-m ensurepip --default-pip" in (tmp_path / "told").read_text().splitlines()
