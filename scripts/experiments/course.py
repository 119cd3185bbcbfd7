"""Runs the notebooks of the course in an empty folder and stores the outputs in them.

    python scripts/experiments/course.py docs/course/*.ipynb

Output that would differ in another run (times, versions) is left out.
"""

import argparse
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient


LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"}
OPTIONS = {"kernel_name": "python3", "record_timing": False, "coalesce_streams": True}
PROGRESS = re.compile(r"\s*<div>\s*<progress.*?</div>", flags=re.DOTALL)  # transformers' bar, with the time it took


def executed(path: Path, folder: Path, *, seconds: int = 600) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run in `folder`; no cell may take longer than `seconds`.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell has failed.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=seconds, resources={"metadata": {"path": str(folder)}}, **OPTIONS).execute()
    notebook.metadata.language_info = LANGUAGE
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                output["data"]["text/html"] = PROGRESS.sub("", output["data"]["text/html"])
    return notebook


def main(paths: list[Path]) -> None:
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, Path(folder)), path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="+", type=Path)
    main(parser.parse_args().notebooks)
