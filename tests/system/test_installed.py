"""The package is built, installed outside the repository and used there."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from packaging.requirements import Requirement

import vanilla_transformer
from vanilla_transformer.run.folder import list_recipes

from ..serving.test_demo import UNBUFFERED, page_of
from .test_documents import SHORTER, SHORTER_STILL


PAGE_NEEDS = 'The page needs gradio: pip install "vanilla-transformer[demo]"'
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
NAME = f"vanilla_transformer-{vanilla_transformer.__version__}"
# PYTHON* variables of the test process may point to the repository.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def said_by(*words, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def repository() -> set[str]:
    """The files that git tracks, without whatever else lies in the folder."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a clone says which files are the repository's")
    return set(said_by("git", "ls-files", "-z", cwd=ROOT).split("\0")) - {""}


@pytest.fixture(scope="module")
def built(repository, tmp_path_factory) -> Path:
    """A folder with the source archive, built from the repository's files, and the wheel, built from that archive."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in repository:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    said_by(sys.executable, "-c", code, folder, cwd=source)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    said_by(*pip, "--wheel-dir", folder, folder / f"{NAME}.tar.gz", cwd=folder)
    return folder


def link_needs(wheel: Path, folder: Path, *extras: str) -> None:
    """Makes a folder of links to this Python's copies of a wheel's dependencies, direct and indirect, and no more."""
    with ZipFile(wheel) as archive:
        lines = message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA")).get_all("Requires-Dist")
    found, waiting = set(), [(lines, extras)]
    while waiting:
        lines, extras = waiting.pop()
        for needed in map(Requirement, lines):
            key = (needed.name, *sorted(needed.extras))
            asked = needed.marker is None or any(needed.marker.evaluate({"extra": each}) for each in ("", *extras))
            if asked and key not in found:
                found.add(key)
                waiting.append((distribution(needed.name).requires or [], sorted(needed.extras)))
    folder.mkdir(parents=True)
    for name in {name for name, *_ in found}:
        having = distribution(name)
        for top in {file.parts[0] for file in having.files} - {"..", "__pycache__"}:
            if not (folder / top).exists():  # several may share a namespace
                (folder / top).symlink_to(having.locate_file(top))


@pytest.fixture(scope="module")
def outside(built, tmp_path_factory) -> Path:
    """A folder with an environment that has the wheel and its dependencies, linked instead of downloaded."""
    folder, wheel = tmp_path_factory.mktemp("outside"), built / f"{NAME}-py3-none-any.whl"
    said_by(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
    pip = [sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python"]
    said_by(*pip, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    # By this folder name dill, which datasets uses, tells libraries from the user's own code.
    link_needs(wheel, folder / "needed" / "site-packages")
    link_needs(wheel, folder / "needed_by_demo" / "site-packages", "demo")
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text(f"{folder / 'needed' / 'site-packages'}\n", encoding="utf-8")
    return folder


def typed(outside: Path, *words) -> str:
    """What `vanilla-transformer WORD...` prints in that environment."""
    return said_by(outside / "venv" / "bin" / "vanilla-transformer", *words, cwd=outside)


@pytest.fixture(scope="module")
def run(outside) -> Path:
    """The result of `train phrasebook` in that environment, after a few updates."""
    shorter = (SHORTER | SHORTER_STILL["phrasebook"]).items()
    typed(outside, "train", "phrasebook", *(word for name, value in shorter for word in (f"--{name}", value)))
    return outside / "runs" / "phrasebook"


def test_source_archive_contains_the_repository(repository, built):
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        files = {each.name.removeprefix(f"{NAME}/") for each in archive if each.isfile()}
    made = {name for name in files if name in ("PKG-INFO", "setup.cfg") or ".egg-info/" in name}
    assert files - made == repository - {".ci/run", ".gitignore"}


def test_wheel_contains_the_package_and_metadata(repository, built):
    about = f"{NAME}.dist-info"
    with ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        files = set(wheel.namelist())
        fields = message_from_bytes(wheel.read(f"{about}/METADATA"))
        assert wheel.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    package = {name for name in repository if name.startswith("vanilla_transformer/")}
    assert {name for name in files if not name.startswith(about)} == package
    assert fields["Version"] == vanilla_transformer.__version__
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Description-Content-Type"] == "text/markdown"
    readme = (ROOT / "vanilla_transformer" / "README.md").read_text(encoding="utf-8")
    assert fields.get_payload(decode=True).decode() == readme


def test_command_runs_the_installed_wheel(outside):
    code = "import vanilla_transformer; print(vanilla_transformer.__file__)"
    file = Path(said_by(outside / "venv" / "bin" / "python", "-c", code, cwd=outside).strip())
    assert file.is_relative_to(outside / "venv")
    assert not outside.is_relative_to(ROOT)
    assert typed(outside, "--version") == f"{vanilla_transformer.__version__}\n"


def test_recipes_are_installed_and_state_needed_scripts(outside):
    listed = dict(line.split(maxsplit=1) for line in typed(outside, "recipes").splitlines())
    assert listed.pop("auto").startswith("Chosen by the size of your text")
    assert listed == list_recipes()
    for name, description in listed.items():
        assert ("the repository's scripts/" in description) == ("scripts/" in typed(outside, "recipes", name))


def test_env_reports_missing_extras(outside):
    report = typed(outside, "env")
    assert f"- vanilla-transformer: {vanilla_transformer.__version__}\n" in report
    assert "- extras installed: none\n" in report
    assert re.search(r"^- extras not installed: .*\bdemo \(lacks gradio>=", report, flags=re.MULTILINE)


def test_run_trained_by_the_wheel_translates(outside, run):
    assert (run / "attention.png").is_file()
    [translation] = typed(outside, "translate", "--model", run, "The dog is old.").splitlines()
    program = [outside / "venv" / "bin" / "python", "-m", "vanilla_transformer"]
    assert said_by(*program, "translate", "--model", run, "The dog is old.", cwd=outside) == f"{translation}\n"


def test_demo_page_needs_the_demo_extra(outside, run):
    without = [outside / "venv" / "bin" / "vanilla-transformer", "demo", run]
    done = subprocess.run(without, cwd=outside, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"vanilla-transformer: {PAGE_NEEDS}\n")
    words = [outside / "venv" / "bin" / "vanilla-transformer", "demo", run]
    environment = {**ENVIRONMENT, **UNBUFFERED, "PYTHONPATH": str(outside / "needed_by_demo" / "site-packages")}
    process = subprocess.Popen(words, cwd=outside, env=environment, stdout=subprocess.PIPE, text=True)
    with page_of(process) as url:
        page = httpx.get(url)
    assert page.status_code == 200
    assert "<gradio-app" in page.text
