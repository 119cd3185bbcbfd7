"""docs/explanation/private-hooks.md lists every private name of other libraries that the package uses, and no more."""

import ast
import re
from pathlib import Path

import evaluate
import sacrebleu.metrics.base
import torch
from transformers import Pipeline, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast, Seq2SeqTrainer
from transformers.generation import GenerationMixin


ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "vanilla_transformer"
FOREIGN = (
    GenerationMixin, Pipeline, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast, Seq2SeqTrainer,
    torch.nn.Module, sacrebleu.metrics.base.Metric, evaluate.Metric,
)  # fmt: skip
NOT_LIBRARIES = {"_exit"}  # os._exit is documented


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_in_code() -> set[str]:
    """Private names that the package reads but does not define, and those of foreign classes that it overrides."""
    used, defined, overridden = set(), set(), set()
    theirs = {name for kind in FOREIGN for name in dir(kind) if is_private(name)}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                defined.add(node.name)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
                (defined if on_self and isinstance(node.ctx, ast.Store) else used).add(node.attr)
            if isinstance(node, ast.ImportFrom) and not node.level:
                used |= {alias.name for alias in node.names if is_private(alias.name)}
            if isinstance(node, ast.ClassDef):
                members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
                assigned = [target for member in node.body for target in getattr(member, "targets", [])]
                members |= {target.id for target in assigned if isinstance(target, ast.Name)}
                overridden |= members & theirs
    return (used - defined | overridden) - NOT_LIBRARIES


def test_page_lists_exactly_the_private_names_used():
    page = (ROOT / "docs" / "explanation" / "private-hooks.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    listed = [name for names, _, _ in rows for name in re.findall(r"`(_\w+)`", names)]
    assert len(listed) == len(set(listed))
    assert set(listed) == names_in_code()
    for names, where, why in rows:
        files = [PACKAGE / f"{place.strip()}.py" for place in where.split(",")]
        files = [file if file.is_file() else file.with_name(f"{file.stem}_vanilla_transformer.py") for file in files]
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        assert all(name in text for name in re.findall(r"`(_\w+)`", names)), (names, where)
        assert why.strip()
