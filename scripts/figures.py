"""Keeps the output of the benchmarks, and finds figures in the documents that no command printed.

    python scripts/figures.py record training-tiny python scripts/benchmarks/training.py --shapes tiny ...
    python scripts/figures.py check

`record` runs a command and keeps it with its output, the machine and the date in docs/figures.json, under a name.
`check` reads README.md and docs/: every figure there must be in the output of a command named by the page, or by a
page to which it links. A figure matches if it is a printed number, rounded as the page rounds it, or that number as a
percentage. Figures not measured here (the paper's, settings, versions) are listed under `stated` in docs/figures.json,
page by page.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import torch

from vanilla_transformer.environment import machine
from vanilla_transformer.files import write_json


ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs/figures.json"

NUMBER = r"(?<![\w.,:])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|(?<![\w.,:])\d+(?:\.\d+)?(?:e[-+]?\d+)?"
# In running text, where numbers also count and name things, a figure has decimals or is followed by one of these. In
# tables all numbers in columns aligned to the right are figures.
UNIT = re.compile(r" ?%| (?:times|ms|s|seconds|minutes|MB|GB|nats|microseconds|sentences/s|pairs/s|pairs a second)\b")
NO_FIGURES = [
    r"^(```|:::|~~~).*?^\1",  # blocks of code
    r"^ {4}.*?$",
    r"`[^`]*`",
    r"<!--.*?-->",
    r"!\[[^]]*\]\([^)]*\)",  # pictures
    r"(?<=\])\([^)]*\)",  # targets of links
    r"[Ss]ections? \d[\d.]*(?:(?:,| and| to) \d[\d.]*)*|[Ee]quations? \d+|Tables? \d+(?: \([A-E]\))?|Figures? \d+",
]


def figures_in(page: str) -> Iterator[tuple[int, str]]:
    """Line and text of every figure on a page."""
    for pattern in NO_FIGURES:  # lines stay where they are
        page = re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found[0]), page, flags=re.M | re.S)
    columns: list[bool] = []
    lines = page.splitlines()
    for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""], strict=True), start=1):
        if not line.startswith("|"):
            columns = []
        elif not columns:  # the head of a table: columns aligned to the right have figures
            columns = [cell.endswith(":") for cell in re.findall(r"[-:]+", after)]
            continue
        for cell, holds_figures in zip(line.strip("|").split("|"), columns or [False], strict=False):
            for found in re.finditer(NUMBER, cell if columns else line):
                unit = UNIT.match(cell if columns else line, found.end())
                if holds_figures or (not columns and (unit or "." in found[0] or "e" in found[0])):
                    yield number, found[0] + ("%" if unit and "%" in unit[0] else "")


def is_in(figure: str, numbers: list[str]) -> bool:
    """Whether one of the numbers, rounded like this figure, is equal to it."""
    text = figure.rstrip("%").replace(",", "")
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    half = 0.5 * 10 ** (int(exponent or 0) - decimals)
    scales = (1, 100) if figure.endswith("%") else (1,)
    values = (float(number.replace(",", "")) for number in numbers)
    return any(abs(scale * value - float(text)) <= half * 1.0001 for value in values for scale in scales)


def sources_of(page: Path, record: dict) -> list[str]:
    """Numbers printed by commands that a page, or one it links to, names; and numbers in linked files of results."""
    text = page.read_text(encoding="utf-8")
    targets = (page.parent / link for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", text))
    linked = [path for path in targets if path.suffix in (".md", ".jsonl", ".json") and path.is_file()]
    named = "\n".join([text, *(path.read_text(encoding="utf-8") for path in linked)])
    printed = [line for each in record["measured"].values() if _script(each) in named for line in each["output"]]
    held = [path.read_text(encoding="utf-8") for path in linked if path.parent.name == "model_cards"]
    held += [path.read_text(encoding="utf-8") for path in linked if path.suffix != ".md"]
    return re.findall(NUMBER, "\n".join([*printed, *held]))


def _script(measurement: dict) -> str:
    """The text that a page must contain to use the figures: the script, or the command and its arguments."""
    words = measurement["command"].split()
    return next((word for word in words if word.startswith("scripts/")), " ".join(words[:3]))


def untraced(root: Path = ROOT) -> list[str]:
    """Every figure of the documents that no command on record printed, as `PAGE:LINE: FIGURE`."""
    record, found = read_record(root / "docs/figures.json"), []
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        name = page.relative_to(root).as_posix()
        stated, numbers = record["stated"].get(name, []), sources_of(page, record)
        for line, figure in figures_in(page.read_text(encoding="utf-8")):
            if figure not in stated and not is_in(figure, numbers):
                found.append(f"{name}:{line}: {figure}")
    return found


def read_record(path: Path) -> dict:
    """The record of all commands; ends the program if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from error


def record(name: str, command: list[str]) -> None:
    """Runs a command, shows its output, and keeps it. A failing command leaves the record as it was."""
    if FIGURES.exists():
        read_record(FIGURES)  # before hours of work are wasted
    output, text = [], {"text": True, "encoding": "utf-8", "errors": "replace"}
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, **text) as process:
            for line in process.stdout:
                print(line, end="", flush=True)
                output.append(line.rstrip())
    except OSError as error:
        sys.exit(f"{shlex.join(command)} cannot be run: {error}")
    if process.returncode:
        sys.exit(f"{shlex.join(command)} ended with {process.returncode}: nothing is kept.")
    here = machine()
    instructions = ", ".join(here["instructions"])
    known = read_record(FIGURES) if FIGURES.exists() else {"measured": {}, "stated": {}}
    known["measured"][name] = {
        "command": shlex.join(command),
        "machine": f"{here['processor']}, {here['cpu_cores']} cores, {instructions}; torch {torch.__version__}",
        "date": date.today().isoformat(),
        "output": [line for line in output if line],
    }
    write_json(FIGURES, known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    recording = commands.add_parser("record", help="run a command and keep its output")
    recording.add_argument("name", help="say training-tiny")
    recording.add_argument("run", nargs="+", metavar="COMMAND")
    commands.add_parser("check", help="list the figures that no command printed")
    arguments, _ = parser.parse_known_args()  # the rest belongs to the command to run
    if arguments.command == "record":
        record(arguments.name, sys.argv[sys.argv.index(arguments.name) + 1 :])
    elif found := untraced():
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
