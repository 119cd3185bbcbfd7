"""`import vanilla_transformer` is nearly free, and no command loads what it does not use."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import yaml

import vanilla_transformer
from vanilla_transformer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.command_line import COMMANDS

from .model.conftest import build_model
from .warm_python import LIBRARIES, WarmPython


ROOT = Path(vanilla_transformer.__file__).parent
# No command imports these to show its help. (sys.modules has many more; these import everything large.)
HEAVIEST = {
    "torch",
    "transformers",
    "numpy",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "tqdm",
    "regex",
    "requests",
}
# Used by parts of the package, or imported by transformers for its model classes, but not needed to translate.
HEAVY = {
    "ctranslate2", "datasets", "evaluate", "fsspec", "matplotlib", "multiprocess", "numexpr", "onnx", "onnxruntime",
    "pandas", "peft", "pyarrow", "rapidfuzz", "sacrebleu", "sacremoses", "scipy", "sentencex", "sklearn", "sympy",
    "tensorboard", "torchvision",
}  # fmt: skip

EXTRAS = [
    "ctranslate2", "evaluate", "fastapi", "ftfy", "gradio", "onnx", "onnxruntime", "peft", "py3langid", "rapidfuzz",
    "rensa", "sentencepiece", "sentencex",
]  # fmt: skip

LOADED = """
import sys, torch, transformers
before = set(sys.modules)
import vanilla_transformer
print(" ".join(sorted(name for name in set(sys.modules) - before)))
"""

TRANSLATING = """
import sys
from vanilla_transformer.cli import main
status = main(sys.argv[1:])
print(" ".join(sys.modules))
sys.exit(status)
"""


LIGHT = """
import sys
from vanilla_transformer.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def test_help_and_recipes_need_neither_torch_nor_transformers():
    """They answer in a tenth of a second; importing both takes several seconds."""
    helps = [[function.__name__, "--help"] for function in COMMANDS]
    bare = WarmPython()  # a Python that has imported nothing
    for arguments in (["--help"], ["--version"], ["recipes"], ["recipes", "phrasebook"], *helps):
        done = bare.run(LIGHT, *arguments)
        assert done.returncode == 0, arguments
        shown = arguments[-1].startswith("--")
        heavy = HEAVIEST | HEAVY if shown else {"torch", "transformers", "numpy"}
        assert heavy.isdisjoint(done.stderr.split()), arguments
        assert done.stdout, arguments
        if len(arguments) == 2 and arguments[1] == "--help":
            assert done.stdout.startswith(f"usage: vanilla-transformer {arguments[0]} ")


def test_cleaning_needs_neither_torch_nor_transformers():
    """They would cost each worker process 300 MB and some seconds."""
    done = WarmPython().run("import sys, vanilla_transformer.cleaning; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert "vanilla_transformer.cleaning.rules" in done.stdout.split()
    assert {"torch", "transformers"}.isdisjoint(done.stdout.split())


def test_package_runs_as_a_module():
    command = [sys.executable, "-m", "vanilla_transformer", "recipes", "phrasebook"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert yaml.safe_load(done.stdout)["data"]["target_language"] == "de"


def test_links_in_installed_pages_resolve():
    """The wheel has the package's own pages but not the repository, so relative links must stay in the package."""
    settings = (ROOT.parent / "pyproject.toml").read_text(encoding="utf-8")
    [readme] = re.findall(r'^readme = "(.+?)"', settings, flags=re.MULTILINE)
    pages = sorted(ROOT.rglob("*.md"))
    assert ROOT.parent / readme in pages
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            inside = (page.parent / target).resolve()
            assert target.startswith("https://") or (inside.is_relative_to(ROOT) and inside.exists()), (page, target)
    [urls] = re.findall(r"^\[project.urls\]\n((?:.+\n)+)", settings, flags=re.MULTILINE)
    assert all(re.fullmatch(r'\w+ = "https://.+"', line) for line in urls.splitlines())


def test_import_loads_no_other_package():
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout.split()
    strangers = [name for name in loaded if not name.startswith(("vanilla_transformer", "importlib"))]
    assert strangers == []


def test_public_names_exist_are_documented_and_listed():
    for name in vanilla_transformer._HOME_OF:
        assert getattr(vanilla_transformer, name).__doc__, name
    assert {*vanilla_transformer.__all__, "OnnxTranslator", "to_ctranslate2"} <= set(dir(vanilla_transformer))


def test_star_import_works_without_extras():
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({EXTRAS}))\nfrom vanilla_transformer import *\nassert translate"
    )
    LIBRARIES.run(code).check_returncode()


def test_translating_loads_no_unused_modules(tmp_path):
    texts = ["A man sees the dog."]
    for part in (build_model(vocab_size=280), learn_tokenizer(texts, TokenizerSettings(vocab_size=265))):
        part.save_pretrained(tmp_path)
    command = [sys.executable, "-c", TRANSLATING, "translate", *texts, "--model", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *translation, loaded = done.stdout.splitlines()
    assert translation
    loaded = loaded.split()
    assert "transformers.modeling_utils" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    parts = {"torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "transformers.models"}
    assert parts.isdisjoint(loaded)
    own = [name.removeprefix("vanilla_transformer.") for name in loaded if name.startswith("vanilla_transformer.")]
    rooms = ("training", "parsing", "sharing", "export", "plots")
    unused = (*rooms, "evaluation.scores", "data.phrasebook", "data.corpora", "translation.markup")
    assert [name for name in own if name.startswith(unused)] == []


# Rooms from the top floor to the ground: a module imports from its own room and from floors below. Within a floor, a
# room may import those listed after it.
FLOORS = [
    ["__main__", "cli", "command_line"],
    ["commands"],
    ["demo", "serving", "sharing", "improving", "adapting", "choosing", "command_processes"],
    ["training", "cleaning"],
    ["run"],
    ["parsing", "translation", "plots", "attention"],
    ["export"],
    ["evaluation", "data"],
    ["environment", "worker_processes", "device", "resuming", "files", "signals", "hub", "model"],
]
# Imports that go up, and why.
UPWARDS = {
    (
        "run",
        "training",
    ): "a recipe's section `training` is checked by training/arguments.py, which imports only data",
    ("command_processes", "cli"): "a command line runs in each process",
    ("evaluation", "parsing"): "the table of metrics has a row for trees",
    ("_registration", "export"): "CTranslate2's converter is given a loader when it is loaded",
    ("_registration", "model"): "the models are registered when transformers is loaded",
}


def imports_of(path: Path, *, at_run_time: bool = False) -> set[str]:
    """Modules of the package that one of them imports, by dotted name without the package's.

    At run time: only imports that happen with the module's own, not those in functions or for type checkers.
    """
    folder, found = path.relative_to(ROOT.parent).parent.parts, set()
    nodes = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not (at_run_time and (for_types or isinstance(node, ast.FunctionDef))):
            nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*folder[: len(folder) - node.level + 1], *(node.module or "").split("."))
            for name in node.names:
                place = ROOT.parent.joinpath(*filter(None, base))
                module = place / name.name
                is_module = module.is_dir() or module.with_suffix(".py").is_file()
                found.add(".".join((module if is_module else place).relative_to(ROOT).parts))
    return found - {""}


def test_imports_never_go_up_a_floor():
    floor = {room: (number, place) for number, rooms in enumerate(FLOORS) for place, room in enumerate(rooms)}
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).with_suffix("").parts[0]
        for module in imports_of(path):
            other = module.partition(".")[0]
            if other == room or room == "__init__" or (room, other) in UPWARDS:
                continue
            if room not in floor or other not in floor or floor[room] > floor[other]:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_imports_have_no_cycles():
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items() if name != "__init__"}
    left = {name: imports_of(path, at_run_time=True) & modules.keys() - {name} for name, path in modules.items()}
    while free := {name for name, needed in left.items() if not needed}:
        left = {name: needed - free for name, needed in left.items() if name not in free}
    assert left == {}


def test_stub_matches_the_exported_names():
    stub = Path(vanilla_transformer.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == vanilla_transformer._HOME_OF
