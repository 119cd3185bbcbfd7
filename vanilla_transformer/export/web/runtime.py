"""onnxruntime-web, which runs ONNX in a browser: from npm, or from a local package."""

import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

from ...files import temporary_folder


RUNTIME_VERSION = "1.30.0"
"""The version of onnxruntime-web that is fetched and that the page is tested with."""

RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")

_PACKAGE = f"onnxruntime-web@{RUNTIME_VERSION}"
_REMEDY = f"give --runtime what `npm pack {_PACKAGE}` writes on another machine, or that package unpacked"


def runtime_files(package: Path | None = None) -> dict[str, bytes]:
    """The files of onnxruntime-web that a page needs, by name.

    Args:
        package: The npm package, as it comes (.tgz) or unpacked (a folder with `dist` in it, say
            `node_modules/onnxruntime-web`); None: npm fetches it.

    Raises:
        FileNotFoundError: There is no such package, it lacks a file, or npm is missing.
        OSError: npm cannot fetch it.
        ValueError: `package` is a file, but not such an archive.
    """
    if package is None:
        with temporary_folder() as folder:
            return runtime_files(_fetched(folder))
    if package.is_dir():
        return {name: (package / "dist" / name).read_bytes() for name in RUNTIME_FILES}
    try:
        with tarfile.open(package) as archive:
            return {name: archive.extractfile(f"package/dist/{name}").read() for name in RUNTIME_FILES}
    except KeyError as error:
        raise FileNotFoundError(f"{package} is not the package of onnxruntime-web: {error.args[0]}") from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{package} is not an npm package: {error}") from error


def _fetched(folder: Path) -> Path:
    """The package, fetched by npm into a folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"The page needs onnxruntime-web, and there is no npm to fetch it: {_REMEDY}.")
    command = [npm, "pack", _PACKAGE, "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(folder.glob("*.tgz"))
    if done.returncode != 0 or not found:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise OSError(f"npm cannot fetch {_PACKAGE} ({said:.300}): {_REMEDY}.")
    return found[0]
