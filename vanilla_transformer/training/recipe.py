"""A training run described in one YAML file: data, tokenizer, model, training, decoding, evaluation."""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from transformers import GenerationConfig
from transformers.configuration_utils import PreTrainedConfig

from ..data.encoding import PairLimits
from ..data.tokenizer import TokenizerSettings
from ..evaluation.metric_names import METRICS, TREE_METRICS
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import OUR_GENERATION_FIELDS, paper_generation_config
from .arguments import VanillaTransformerTrainingArguments


@dataclass(frozen=True)
class DataSettings:
    """The `data` section: where sentence pairs come from and which of them are trained on.

    Attributes:
        source_language: Language code of the source.
        target_language: Language code of the target.
        train: The training corpus, in any form that `load_corpus` reads.
        validation: What checkpoints are chosen by.
        test: Names of test sets with their corpora.
        folder: What relative paths are relative to; the current folder if it is not given.
        max_source_length: Longest source that is trained on, in tokens with `</s>`.
        max_target_length: Longest target that is trained on, in tokens with `</s>`.
        max_length_ratio: How many times longer one side may be than the other; null for any.
        stream: Read the training corpus a piece at a time, for ever, instead of holding it in memory.
        buffer_pairs: With `stream`: pairs that are sorted by length and shuffled together.
        patience: Seconds without a new pair after which a broken connection to the Hub ends the run.
    """

    source_language: str
    target_language: str
    train: Any
    validation: Any
    test: dict = field(default_factory=dict)
    folder: str = "."
    max_source_length: int = 256
    max_target_length: int = 256
    max_length_ratio: float | None = None
    stream: bool = False
    buffer_pairs: int = 200_000
    patience: float = 3600.0

    def __post_init__(self):
        for language in (self.source_language, self.target_language):
            if not re.fullmatch(r"[A-Za-z]{2,3}([-_]\w+)?", language):
                raise ValueError(f"data: {language!r} is no language code, say 'de' or 'pt_BR'")
        for name in self.test:
            if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*", name) or name in ("train", "validation"):
                raise ValueError(
                    f"data.test: {name!r} is no name for a test set: use letters, digits, '_', '-' and '.' (a number "
                    "in quotes)"
                )

    @property
    def limits(self) -> PairLimits:
        return PairLimits(self.max_source_length, self.max_target_length, self.max_length_ratio)


@dataclass(frozen=True)
class EvaluationSettings:
    """The `evaluation` section.

    Attributes:
        metrics: Which scores to compute on validation and test sets.
        examples: Source sentences; the first is the one whose attention is drawn when the run is done.
    """

    metrics: list = field(default_factory=lambda: ["sacrebleu", "chrf"])
    examples: list = field(default_factory=list)

    def __post_init__(self):
        if not all(isinstance(example, str) for example in self.examples):
            raise ValueError(f"evaluation.examples must be sentences, not {self.examples!r}")
        if not self.metrics:
            raise ValueError(f"evaluation.metrics is empty: choose of {', '.join((*METRICS, *TREE_METRICS))}")
        for metric in self.metrics:
            _check_known(metric, (*METRICS, *TREE_METRICS), "evaluation.metrics: ")


@dataclass(frozen=True)
class Recipe:
    """One run.

    Attributes:
        description: One line for `vanilla-transformer recipes`.
        data: Where the sentence pairs come from.
        tokenizer: The vocabulary to learn from the training text.
        model: Fields of `VanillaTransformerConfig` that differ from its defaults, and `attn_implementation`.
        training: Fields of `VanillaTransformerTrainingArguments` that differ from its defaults.
        decoding: Fields of transformers' `GenerationConfig` that differ from the paper's decoding.
        evaluation: What is measured at the end.
    """

    description: str
    data: DataSettings
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: dict = field(default_factory=dict)
    training: dict = field(default_factory=dict)
    decoding: dict = field(default_factory=dict)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self):
        beams, penalty = self.decoding.get("num_beams", 1), self.decoding.get("length_penalty", 1.0)
        if type(beams) is not int or beams < 1:
            raise ValueError(f"decoding.num_beams must be a whole number of at least 1, not {beams!r}")
        if not isinstance(penalty, (int, float)):
            raise ValueError(f"decoding.length_penalty must be a number, not {penalty!r}")
        try:
            paper_generation_config(VanillaTransformerConfig(), **self.decoding).validate(strict=True)
        except ValueError as error:
            raise ValueError(f"decoding: {error}") from error
        if self.training.get("hub_token") is not None:  # recipes are kept with every checkpoint, and published
            raise ValueError(
                "training.hub_token would be stored with the run: log in with `hf auth login` instead, or set HF_TOKEN"
            )
        if "num_train_epochs" in self.training:
            raise ValueError("training.num_train_epochs has no effect, a run is measured in updates: set max_steps")

    @property
    def is_parser(self) -> bool:
        """Whether it makes trees, and no translations."""
        return not TREE_METRICS.keys().isdisjoint(self.evaluation.metrics)

    def to_yaml(self) -> str:
        """The recipe as a file that `load_recipe` reads back."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True, width=120)


def load_recipe(name_or_path: str | Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Reads and checks a recipe.

    Args:
        name_or_path: Name of a recipe that comes with the package, or a YAML file.
        overrides: Values, as they are typed on the command line, by dotted name: `{"training.max_steps": "2000"}`.

    Raises:
        FileNotFoundError: There is no such recipe; the message names those there are.
        ValueError: A field is unknown (the message names the nearest known one), missing, or of the wrong kind.
    """
    path = _find(str(name_or_path))
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        if not isinstance(content, dict):
            raise ValueError("a recipe is a mapping with the sections data, tokenizer, model, training ...")
        for name, text in (overrides or {}).items():
            _override(content, name, _value(name, text))
        return _build(Recipe, content, "")
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"Recipe {path.name}: {error}") from error


class _Loader(yaml.SafeLoader):
    """YAML in which a field may stand only once: plain YAML keeps the last one and says nothing."""

    def construct_mapping(self, node, deep=False):
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        names = [self.construct_object(key, deep=True) for key in keys]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} stands twice in one section (near line {node.start_mark.line + 1})")
        return super().construct_mapping(node, deep)


def list_recipes() -> dict[str, str]:
    """Names of the recipes that come with the package, with one line on each."""
    files = sorted(_folder().glob("*.yaml"))
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["description"] for path in files}


def _folder() -> Path:
    return Path(str(resources.files("vanilla_transformer"))) / "recipes"


def _find(name_or_path: str) -> Path:
    shipped = [_folder() / f"{name_or_path}.yaml"] if Path(name_or_path).name == name_or_path else []
    for path in (*shipped, Path(name_or_path)):
        if path.is_file():
            return path
    known = [path.stem for path in sorted(_folder().glob("*.yaml"))]
    raise FileNotFoundError(f"There is no recipe {name_or_path!r}: give a YAML file or one of {', '.join(known)}.")


def _value(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: {text!r} is not a YAML value ({error})") from error


def _override(content: dict, name: str, value: Any) -> None:
    *sections, last = name.split(".")
    for section in sections:
        if content.get(section) is None:  # missing, or there without a field
            content[section] = {}
        content = content[section]
        if not isinstance(content, dict):
            raise ValueError(f"{name} is unknown: {section} has no fields")
    content[last] = value


# ----------------------------------------------------------------------------------------------------------- checking


def _build(kind: type, content: Any, prefix: str) -> Any:
    """Makes a dataclass of plain values, refusing unknown names and wrong kinds of values."""
    if not isinstance(content, dict):
        raise ValueError(f"{prefix.rstrip('.')} must be a mapping, not {content!r}")
    hints = typing.get_type_hints(kind)
    values = {}
    for name, value in content.items():
        _check_known(name, hints, prefix)
        values[name] = _checked(f"{prefix}{name}", value, hints[name])
    missing = [f.name for f in dataclasses.fields(kind) if _is_required(f) and values.get(f.name) is None]
    if missing:
        raise ValueError(f"{prefix}{missing[0]} is missing")
    return kind(**values)


def _is_required(f: dataclasses.Field) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _checked(name: str, value: Any, hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, f"{name}.")
    if name in _OPEN_SECTIONS:
        return _open_section(name, value, _OPEN_SECTIONS[name]())
    return _of_type(name, value, hint)


def _open_section(name: str, content: Any, known: dict[str, Any]) -> dict:
    if not isinstance(content, dict):
        raise ValueError(f"{name} must be a mapping, not {content!r}")
    for key in content:
        _check_known(key, known, f"{name}.")
    return {key: _of_type(f"{name}.{key}", value, known[key]) for key, value in content.items()}


def _model_fields() -> dict[str, Any]:
    not_ours = {"vocab_size", *(f.name for f in dataclasses.fields(PreTrainedConfig))}
    own = {f.name: f.type for f in dataclasses.fields(VanillaTransformerConfig) if f.name not in not_ours}
    return own | {"attn_implementation": str}


def _training_fields() -> dict[str, Any]:
    known = {f.name: f.type for f in dataclasses.fields(VanillaTransformerTrainingArguments) if f.init}
    del known["output_dir"]  # the run folder says where
    return known


def _decoding_fields() -> dict[str, Any]:
    return dict.fromkeys((*GenerationConfig().to_dict(), *OUR_GENERATION_FIELDS), Any)


# Sections whose fields are those of a class of transformers; vocab_size is the tokenizer's.
_OPEN_SECTIONS = {"model": _model_fields, "training": _training_fields, "decoding": _decoding_fields}


def _check_known(name: str, known: typing.Iterable[str], prefix: str) -> None:
    if name not in known:
        nearest = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.0)
        raise ValueError(f"{prefix}{name} is unknown; did you mean {prefix}{nearest[0]}?")


def _of_type(name: str, value: Any, hint: Any) -> Any:
    """Checks plain values; what else transformers' arguments take is left to transformers."""
    hints = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) else {hint}
    if typing.get_origin(hint) is typing.Union:
        hints = set(typing.get_args(hint))
    if not hints <= {bool, int, float, str, list, dict, type(None)}:
        return value
    if float in hints and isinstance(value, str) and str not in hints:
        value = _as_number(value)  # YAML takes 1e-9, without a point, for a text
    if float in hints and isinstance(value, int) and not isinstance(value, bool):
        return value
    if type(value) not in hints:
        wanted = " or ".join(sorted("null" if h is type(None) else h.__name__ for h in hints))
        raise ValueError(f"{name} must be {wanted}, not {value!r}")
    return value


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
