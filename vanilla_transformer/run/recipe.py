"""A training run described in one YAML file: data, tokenizer, model, training, decoding, evaluation."""

import dataclasses
import difflib
import json
import math
import re
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml
from transformers import GenerationConfig
from transformers.configuration_utils import PreTrainedConfig

from ..data.context import MOST_SENTENCES, SEPARATOR
from ..data.encoding import PairLimits
from ..data.growing import check_growth
from ..data.languages import is_language_code
from ..data.mixture import CorpusSettings, copies_of
from ..data.terms import TERM_MARKERS, TERMS
from ..data.tokenizer import TokenizerSettings
from ..evaluation.metrics import METRICS
from ..model.checks_vanilla_transformer import OUR_GENERATION_FIELDS, check_decoding
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..model.generation_vanilla_transformer import paper_generation_config
from ..training.arguments import UNDER_NOAM, WITHOUT_EFFECT, VanillaTransformerTrainingArguments
from .folder import find_recipe


_LANGUAGES = ("source_language", "target_language")


def is_validation(name: str) -> bool:
    """Whether a measured set of this name is the validation set, or one of several."""
    return name == "validation" or name.startswith("validation_")


@dataclass(frozen=True)
class DataSettings:
    """The `data` section: where sentence pairs come from and which of them are trained on.

    Attributes:
        source_language: Language code of the source.
        target_language: Language code of the target.
        train: The training corpus, in any form that `load_corpus` reads; or a list of several, each a mapping with the
            fields below.
        validation: The text by which checkpoints are chosen: a corpus; or a list of several, each a mapping `{corpus:
            ..., source_language: ..., target_language: ...}`. The languages may be left out.
        test: Names of test sets, each with a corpus or such a mapping.
        folder: The folder that relative paths start from; by default the current one.
        max_source_length: Longest source that is trained on, in tokens with `</s>`.
        max_target_length: Longest target that is trained on, in tokens with `</s>`.
        max_length_ratio: How many times longer one side may be than the other; null for any.
        stream: Read the training corpus a piece at a time, for ever, instead of holding it in memory.
        sampling_temperature: With a list of corpora: above 1, small ones come more often than in proportion to their
            pairs, p_i ~ pairs_i^(1/T) times the weight. 5 is usual for several languages.
        buffer_pairs: With `stream`, and with several corpora: pairs that are sorted by length and shuffled together.
        patience: Seconds without a new pair after which a broken connection to the Hub ends the run.
        context_sentences: Maximum number of preceding sentences, of the same document, that are read with a source; 0
            for none. A pair that is blank on both sides ends a document, and so does a new value in a column
            `document`.
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
    sampling_temperature: float = 1.0
    buffer_pairs: int = 200_000
    patience: float = 3600.0
    context_sentences: int = 0

    def __post_init__(self):
        for name in ("train", "validation", "test", "folder"):
            object.__setattr__(self, name, _without_paths(getattr(self, name)))
        for name in _LANGUAGES:
            _check_language(f"data.{name}", getattr(self, name))
        if not 1 <= self.sampling_temperature < math.inf:
            raise ValueError(f"data.sampling_temperature must be at least 1, not {self.sampling_temperature}")
        if self.sampling_temperature != 1 and not self.mixture:
            raise ValueError("data.sampling_temperature is for a list of corpora in data.train")
        if self.buffer_pairs < 1:
            raise ValueError(f"data.buffer_pairs must be at least 1, not {self.buffer_pairs}")
        if not 0 <= self.context_sentences <= MOST_SENTENCES:
            raise ValueError(f"data.context_sentences must be from 0 to {MOST_SENTENCES}, not {self.context_sentences}")
        for name in self.test:
            fits = isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]{0,59}", name)  # files are named so
            if not fits or name in ("train", "validation"):
                raise ValueError(
                    f"data.test: {_shown(name)} is not a name for a test set: use up to 60 letters, digits, '_', '-' "
                    "and '.' (a number in quotes)"
                )
            if is_validation(name):  # the model of the run would be chosen by it
                raise ValueError(f"data.test: {_shown(name)} is a name for a validation set: choose another")
        _ = self.measured  # raises if a set is invalid
        if self.mixture:
            copies_of([each.weight for each in self.mixture])
            for number, each in enumerate(self.mixture):
                for language in (each.source_language, each.target_language):
                    if language is not None:
                        _check_language(f"data.train[{number}]", language)
            if self.context_sentences and not any(each.documents for each in self.mixture):
                raise ValueError("data.context_sentences has no effect: documents is false for every corpus")
            if not any(each.vocabulary for each in self.mixture):
                raise ValueError("data.train: vocabulary is false for every corpus; learn it from one of them at least")

    @property
    def mixture(self) -> list[CorpusSettings]:
        """The corpora of `train` if it is a list of several; empty if it is one corpus."""
        if isinstance(self.train, Mapping) and "corpus" in self.train:
            raise ValueError("data.train: {corpus: ...} is one of a list: write it behind a dash, or in [ ]")
        if not isinstance(self.train, (list, tuple)) or all(isinstance(each, (str, Path)) for each in self.train):
            return []
        return [_corpus_settings(f"data.train[{i}]", each) for i, each in enumerate(self.train)]

    @property
    def measured(self) -> dict[str, tuple[Any, str, str]]:
        """The validation and test sets by name, validation first: where each is, and its languages.

        Several validation sets are named by their languages: `validation_en-de`.
        """
        own, found = (self.source_language, self.target_language), {}
        if self._is_list_of_sets(self.validation):
            for number, each in enumerate(self.validation):
                where, source, target = _measured_set(f"data.validation[{number}]", each, own)
                if (name := f"validation_{source}-{target}") in found or name in self.test:
                    raise ValueError(f"data.validation[{number}]: there is another set {name}")
                found[name] = where, source, target
        else:
            found["validation"] = _measured_set("data.validation", self.validation, own)
        return found | {name: _measured_set(f"data.test.{name}", each, own) for name, each in self.test.items()}

    @staticmethod
    def _is_list_of_sets(where: Any) -> bool:
        return isinstance(where, (list, tuple)) and bool(where) and all(isinstance(each, Mapping) for each in where)

    @property
    def target_languages(self) -> list[str]:
        """The languages that the training corpora are translated into."""
        return list(dict.fromkeys(each.target_language or self.target_language for each in self.mixture)) or [
            self.target_language
        ]

    @property
    def source_languages(self) -> list[str]:
        """The languages that the training corpora are translated from."""
        return list(dict.fromkeys(each.source_language or self.source_language for each in self.mixture)) or [
            self.source_language
        ]

    @property
    def from_to(self) -> str:
        """The languages in words: "en into de and fr"."""
        return " into ".join(_listed(each) for each in (self.source_languages, self.target_languages))

    @property
    def limits(self) -> PairLimits:
        """Limits on the pairs to train on, in tokens."""
        return PairLimits(self.max_source_length, self.max_target_length, self.max_length_ratio)


@dataclass(frozen=True)
class EvaluationSettings:
    """The `evaluation` section.

    Attributes:
        metrics: Which scores to compute on validation and test sets.
        examples: Source sentences; the attention on the first is drawn when the run is done.
    """

    metrics: list = field(default_factory=lambda: ["sacrebleu", "chrf"])
    examples: list = field(default_factory=list)

    def __post_init__(self):
        if not all(isinstance(example, str) for example in self.examples):
            raise ValueError(f"evaluation.examples must be sentences, not {_shown(self.examples)}")
        known = tuple(name for name, row in METRICS.items() if not row.needs_sources)
        if not self.metrics:
            raise ValueError(f"evaluation.metrics is empty: choose from {', '.join(known)}")
        for metric in self.metrics:
            check_known(metric, known, "evaluation.metrics: ")


@dataclass(frozen=True)
class Recipe:
    """One run.

    Attributes:
        description: One line on it, for cards and for `vanilla-transformer recipes`.
        data: Where the sentence pairs come from.
        tokenizer: The vocabulary to learn from the training text.
        model: Fields of `VanillaTransformerConfig` that differ from its defaults, and `attn_implementation`.
        training: Fields of `VanillaTransformerTrainingArguments` that differ from its defaults.
        decoding: Fields of transformers' `GenerationConfig` that differ from the paper's decoding.
        evaluation: The measurements at the end.
        initial_model: A model to begin with instead of random weights: a run folder, a model's folder, or USER/NAME of
            the Hub. Its vocabulary is taken too, and the section `tokenizer` has no effect. `model` must describe it;
            fields for training only, such as dropout, may differ.
        grow_vocabulary: With `initial_model`: maximum number of pieces of the training text to add to its vocabulary;
            or `auto`, all that occur at least 100 times, at most as many as it has. Corpora with `vocabulary: false`
            give none.
    """

    description: str = field(default="", kw_only=True)
    data: DataSettings
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: dict = field(default_factory=dict)
    training: dict = field(default_factory=dict)
    decoding: dict = field(default_factory=dict)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    initial_model: str | None = None
    grow_vocabulary: int | str = 0

    def __post_init__(self):
        check_growth(self.grow_vocabulary)
        if self.grow_vocabulary and self.initial_model is None:
            raise ValueError("grow_vocabulary needs initial_model: set tokenizer.vocab_size of a vocabulary to learn")
        if self.training.get("lora_rank") and self.initial_model is None:
            raise ValueError("training.lora_rank needs initial_model: adapters alone cannot train random weights")
        if self.training.get("aligned_embeddings") and self.initial_model is not None:
            raise ValueError("training.aligned_embeddings is for random weights: leave it or initial_model out")
        floors = self.training.get("floors") or {}
        if isinstance(floors, Mapping) and (missing := sorted(floors.keys() - self.data.test.keys())):
            raise ValueError(f"training.floors: there is no test set {missing[0]!r} in data.test")
        if "/" in (attention := self.model.get("attn_implementation") or ""):
            raise ValueError(
                f"model.attn_implementation = {_shown(attention)} would be fetched from the Hub and run: choose eager "
                "or sdpa, which torch has"
            )
        naming_the_field("model", self.model, lambda fields: VanillaTransformerConfig(**fields))
        try:
            check_decoding(self.decoding, self.tokenizer.vocab_size)
        except ValueError as error:
            raise ValueError(f"decoding.{error}") from error
        naming_the_field(
            "decoding",
            self.decoding,
            lambda fields: paper_generation_config(VanillaTransformerConfig(), **fields).validate(strict=True),
        )
        if self.training.get("hub_token") is not None:  # recipes are kept with every checkpoint, and published
            raise ValueError(
                "training.hub_token would be stored with the run: log in with `hf auth login` instead, or set HF_TOKEN"
            )
        if self.training.get("bpe_dropout") and self.tokenizer.kind != "bpe":
            raise ValueError(
                f"training.bpe_dropout needs tokenizer.kind = bpe, not {self.tokenizer.kind}: it leaves out merges, "
                "and word pieces have none"
            )
        for name, value, why in (
            ("training.augmentation", self.training.get("augmentation"), "would put trees in capitals too"),
            ("tokenizer.forms", self.tokenizer.forms, "would put trees in capitals too"),
            ("data.context_sentences", self.data.context_sentences, "is for translation"),
        ):
            if value and self.is_parser:
                raise ValueError(f"{name} {why}: leave it out of a parser's recipe")
        for each in self.data.mixture:
            if each.tag in self.term_markers:
                raise ValueError(f"data.train: the tag {each.tag} marks terms (training.augmentation): choose another")
            if each.tag == SEPARATOR:
                raise ValueError(f"data.train: the tag {each.tag} ends a sentence of context: choose another")
        without = WITHOUT_EFFECT if self.training.get("noam_factor", 1.0) is None else WITHOUT_EFFECT | UNDER_NOAM
        for name in self.training.keys() & without.keys():
            raise ValueError(f"training.{name} has no effect, {without[name]}")
        for name, argument in {"label_smoothing": "label_smoothing_factor", "r_drop_alpha": "r_drop_alpha"}.items():
            if name in self.model:  # also 0, which would not turn it off
                raise ValueError(f"model.{name} has no effect: set training.{argument}")

    @property
    def term_markers(self) -> tuple[str, ...]:
        """The tokens that mark soft terms, which are added to the vocabulary; empty if no soft terms are trained."""
        augmentation = self.training.get("augmentation")
        return TERM_MARKERS if isinstance(augmentation, Mapping) and augmentation.get(TERMS) else ()

    @property
    def added_tokens(self) -> tuple[str, ...]:
        """The tokens added to the vocabulary besides pieces and the tags of corpora."""
        return (*self.term_markers, *((SEPARATOR,) if self.data.context_sentences else ()))

    @property
    def is_parser(self) -> bool:
        """Whether the model writes trees instead of translations."""
        return any(METRICS[metric].of_trees for metric in self.evaluation.metrics)

    def to_yaml(self) -> str:
        """The recipe as a file that `load_recipe` reads back."""
        options = {"sort_keys": False, "allow_unicode": True, "width": 120}
        return yaml.dump(dataclasses.asdict(self), Dumper=_Dumper, **options)


def load_recipe(name_or_path: str | Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Reads and checks a recipe.

    Args:
        name_or_path: Name of a recipe that comes with the package, or a YAML file.
        overrides: Values, as they are typed on the command line, by dotted name: `{"training.max_steps": "2000"}`.

    Raises:
        FileNotFoundError: There is no such recipe; the message names those there are.
        ValueError: A field is unknown (the message names the nearest known one), missing, or of the wrong kind.
    """
    return load_recipe_with(name_or_path, overrides)[0]


def load_recipe_with(
    name_or_path: str | Path, overrides: Mapping[str, str] | None = None, **sections: type
) -> tuple[Recipe, ...]:
    """Reads a recipe as `load_recipe` does, and with it sections that are not part of the run.

    Args:
        **sections: The dataclass that each section becomes, by name. Other sections in `SECTIONS_APART` are skipped.
    """
    path = find_recipe(str(name_or_path))
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"a recipe has at most {_MOST_BYTES:,} bytes, and this file {size:,}")
        content = _loaded(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("a recipe is a mapping with the sections data, tokenizer, model, training ...")
        return recipe_with(content, overrides, **sections)
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"Recipe {path.name}: {error}") from error


def recipe_of(overrides: Mapping[str, str]) -> Recipe:
    """Makes a recipe from overrides alone. Raises ValueError as `load_recipe` does."""
    return recipe_with({}, overrides)[0]


def recipe_with(content: dict, overrides: Mapping[str, str] | None = None, **sections: type) -> tuple[Recipe, ...]:
    """As `load_recipe_with`, from the content of a file, which the overrides change in place."""
    for name, text in (overrides or {}).items():
        if sections or name.partition(".")[0] not in SECTIONS_APART:
            override(content, name, text)
        else:
            raise ValueError(f"{name} is only for the command {name.partition('.')[0]}")
    apart = {name: content.pop(name, None) for name in SECTIONS_APART}
    found = [_checked(name, apart[name] or {}, kind) for name, kind in sections.items()]
    return _checked("", content, Recipe), *found


SECTIONS_APART = ("improve",)  # for the command of that name; others may be given the same file

# Recipes may come from strangers, with a model of the Hub: none may take long to read, or much room in a message.
_MOST_BYTES = 1_000_000
_MOST_DIGITS = 400
_MOST_SHOWN = 200


def _loaded(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError("sections are nested too deeply") from None


def _shown(value: Any) -> str:
    """A value as messages show it: shortened if it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with too many digits for Python to write; lists nested too deeply
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _plain(name: Any) -> str:
    """The name of a field as messages show it."""
    return name[:_MOST_SHOWN] if isinstance(name, str) else _shown(name)


class _Loader(yaml.SafeLoader):
    """YAML without duplicate fields, of which plain YAML silently keeps the last.

    Aliases are not read either: with them a file of one kilobyte can have a thousand million values.
    """

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            name, line = _plain(event.anchor), event.start_mark.line + 1
            raise ValueError(f"the alias *{name} (line {line}) is not read: write out what it stands for")
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key in [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, Hashable):
                break  # plain YAML raises the error
            if name in seen:
                raise ValueError(f"{_plain(name)} stands twice in one section (near line {node.start_mark.line + 1})")
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node):
        if len(node.value) > _MOST_DIGITS:
            raise ValueError(f"line {node.start_mark.line + 1}: a number of {len(node.value):,} digits")
        return super().construct_yaml_int(node)


class _Dumper(yaml.SafeDumper):
    """Puts text in quotes that the loader would read as a number."""


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
# YAML 1.1 wants a point in a number with an exponent; JSON, in which typed values are written, has none in 1e-05.
for _each in (_Loader, _Dumper):
    _each.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]\d+$"), list("-+0123456789"))


def override(content: dict, name: str, text: str) -> None:
    """Sets a field of the content of a recipe, by its dotted name, to a value as it is typed.

    Raises ValueError if that is not a YAML value, or if the name leads through something other than a section.
    """
    try:
        value = _loaded(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: {_shown(text)} is not a YAML value ({error})") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    *sections, last = name.split(".")
    for section in sections:
        if content.get(section) is None:  # missing, or there without a field
            content[section] = {}
        content = content[section]
        if not isinstance(content, dict):
            raise ValueError(f"{name} is unknown: {section} has no fields")
    content[last] = value


def by_field(typed: Mapping[str, str]) -> dict[str, str]:
    """Overrides with each section that is typed as a whole taken apart: `{"training": "{max_tokens: 512}"}` becomes
    `{"training.max_tokens": "512"}`.

    So it changes those fields alone, and does not replace the whole section. Raises ValueError as `override` does.
    """
    found: dict[str, str] = {}
    for name, text in typed.items():
        content: dict[str, Any] = {}
        override(content, name, text)
        value = content.get(name)
        found |= as_typed(dotted({name: value})) if isinstance(value, dict) else {name: text}
    return found


def dotted(sections: Mapping[str, Mapping]) -> dict[str, Any]:
    """Fields by section as overrides: `{model: {decoder_layers: 2}}` is `model.decoder_layers`."""
    return {f"{section}.{name}": value for section, fields in sections.items() for name, value in fields.items()}


def as_typed(overrides: Mapping[str, Any]) -> dict[str, str]:
    """Values by dotted name as they are typed on a command line."""
    return {name: json.dumps(value, ensure_ascii=False, default=str) for name, value in overrides.items()}


def differing_fields(before: Mapping, now: Mapping, sections: Iterable[str]) -> Iterator[tuple[str, Any, Any]]:
    """The dotted name and both values of each field in which these sections of two recipes, as mappings, differ.

    An entry that is not a mapping, such as `initial_model`, is a field of its own.
    """
    for section in sections:
        old, new = (each[section] if isinstance(each[section], dict) else {"": each[section]} for each in (before, now))
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name):
                yield f"{section}.{name}".rstrip("."), old.get(name), new.get(name)


# ----------------------------------------------------------------------------------------------------------- checking


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Makes a field or a section from plain values, and refuses unknown names and wrong kinds of values."""
    is_ours = dataclasses.is_dataclass(hint)
    if not is_ours and name not in _OPEN_SECTIONS:
        return of_type(name, value, hint)
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a mapping, not {_shown(value)}")
    known = typing.get_type_hints(hint) if is_ours else _OPEN_SECTIONS[name]()
    prefix, values = f"{name}." if name else "", {}
    for key, each in value.items():
        check_known(key, known, prefix)
        values[key] = _checked(f"{prefix}{key}", each, known[key])
    if not is_ours:
        return values
    for each in dataclasses.fields(hint):
        required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        if required and values.get(each.name) is None:
            raise ValueError(f"{prefix}{each.name} is missing")
    return hint(**values)


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _without_paths(value: Any) -> Any:
    """The value with text in the place of paths, as YAML has it."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_without_paths, value))
    return {key: _without_paths(each) for key, each in value.items()} if isinstance(value, dict) else value


def _check_language(name: str, language: Any) -> None:
    if not isinstance(language, str) or not is_language_code(language):
        quote = ": put it in quotes, for YAML reads no as false" if language is False else ""
        raise ValueError(f"{name}: {_shown(language)} is not a language code, say 'de' or 'pt_BR'{quote}")


def _measured_set(name: str, value: Any, languages: tuple[str, str]) -> tuple[Any, str, str]:
    """Where a set is, and its languages; a mapping with `corpus` may have its own."""
    if not isinstance(value, Mapping) or "corpus" not in value:
        return value, *languages
    for key in value:
        check_known(key, ("corpus", *_LANGUAGES), f"{name}.")
    source, target = (
        own if value.get(key) is None else value[key] for key, own in zip(_LANGUAGES, languages, strict=True)
    )
    for language in (source, target):
        _check_language(name, language)
    return value["corpus"], source, target


def _corpus_settings(name: str, value: Any) -> CorpusSettings:
    """One of the corpora of `data.train`."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a mapping, not {_shown(value)}: write {{corpus: {_shown(value)}}}")
    try:
        return _checked(name, value, CorpusSettings)
    except ValueError as error:
        raise ValueError(said if (said := str(error)).startswith(name) else f"{name}: {said}") from None


def _model_fields() -> dict[str, Any]:
    not_ours = {"vocab_size", *(f.name for f in dataclasses.fields(PreTrainedConfig))}
    own = {f.name: f.type for f in dataclasses.fields(VanillaTransformerConfig) if f.name not in not_ours}
    return own | {"attn_implementation": str}


def _training_fields() -> dict[str, Any]:
    # Not `field.type`: an HfArgumentParser of these arguments changes it in place.
    hints = typing.get_type_hints(VanillaTransformerTrainingArguments)
    known = {f.name: hints[f.name] for f in dataclasses.fields(VanillaTransformerTrainingArguments) if f.init}
    known["fsdp"] |= bool  # transformers takes True too, but does not say so
    del known["output_dir"]  # the run folder says where
    return known


# Sections whose fields are those of a class of transformers; vocab_size is the tokenizer's.
_OPEN_SECTIONS = {
    "model": _model_fields,
    "training": _training_fields,
    "decoding": lambda: dict.fromkeys((*GenerationConfig().to_dict(), *OUR_GENERATION_FIELDS), Any),
}


def check_known(name: str, known: typing.Iterable[str], prefix: str) -> None:
    """Raises ValueError, with a hint, unless this is one of the names that may follow the prefix."""
    if name in known:
        return
    name = _plain(name)
    near = [f"{prefix}{each}" for each in difflib.get_close_matches(name, list(known), n=1)]
    sections = {section: fields() for section, fields in _OPEN_SECTIONS.items()}
    for section, hint in typing.get_type_hints(Recipe).items():
        if dataclasses.is_dataclass(hint):
            sections[section] = typing.get_type_hints(hint)
    if prefix in ("", *(f"{section}." for section in sections)):  # its section may be missing, or be another one
        fields = {field: f"{section}.{field}" for section, fields in sections.items() for field in fields}
        near = [fields[name]] if name in fields else near
        near = near or [fields[each] for each in difflib.get_close_matches(name, list(fields), n=1)]
    known = list(known)
    hint = f"; did you mean {near[0]}?" if near else f"; choose from {', '.join(known)}" if len(known) < 20 else ""
    raise ValueError(f"{prefix}{name} is unknown{hint}")


def of_type(name: str, value: Any, hint: Any) -> Any:
    """Checks plain values; other kinds that transformers' arguments take are left to transformers."""
    hints = _plain_types(hint)
    if not hints <= {bool, int, float, str, list, dict, type(None)}:
        hints = {type(value)}
    if float in hints and isinstance(value, str) and str not in hints:
        with suppress(ValueError):
            value = float(value)  # YAML takes 1e-9, without a point, for a string
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ValueError(f"{name} is a number of {len(str(abs(value)))} digits")
    if float in hints and isinstance(value, int) and not isinstance(value, bool):
        return value
    if type(value) not in hints:
        wanted = " or ".join(sorted("null" if h is type(None) else h.__name__ for h in hints))
        is_word = type(value) is bool and str in hints
        remedy = """: YAML reads no, yes, on and off so. Quote it: "no", on a command line '"no"'""" if is_word else ""
        raise ValueError(f"{name} must be {wanted}, not {_shown(value)}{remedy}")
    return value


def _plain_types(hint: Any) -> set[type]:
    """The types that YAML has for a hint: `dict[str, Any] | Path | None` is {dict, Path, NoneType}."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return {kind for each in typing.get_args(hint) for kind in _plain_types(each)}
    if typing.get_origin(hint) is typing.Literal:
        return {type(value) for value in typing.get_args(hint)}
    kind = typing.get_origin(hint) or hint
    return {str if isinstance(kind, type) and issubclass(kind, str) else kind}  # choices of transformers are texts


def naming_the_field(section: str, fields: Mapping[str, Any], make: Callable[[Mapping[str, Any]], Any]) -> Any:
    """`make(fields)`. If that fails, ValueError names the section and the field without which it would not fail.

    The check of a field may not know its name, and may name a missing package, a file or a key instead.
    """

    def fails_without(left_out: str) -> str | None:
        try:
            make({name: value for name, value in fields.items() if name != left_out})
        except Exception as error:
            return _said(error)
        return None

    try:
        return make(fields)
    except Exception as error:
        said = _said(error)
        without = {name: fails_without(name) for name in fields}
        mended = [name for name in fields if without[name] is None]
        # With two mistakes, leaving out one fixes nothing; and leaving out a field may cause another error, because
        # fields belong together.
        other = [name for name in fields if without[name] != said and (name in said or str(fields[name]) in said)]
        if not mended and not other:
            raise ValueError(f"{section}: {said}") from error
        # Of several, take the one that the message names, if it names one: it may come later in the file.
        name = min(mended or other, key=lambda name: said.find(name) if name in said else len(said))
        if said.startswith(name):
            raise ValueError(f"{section}.{said}") from error
        if isinstance(error, (ValueError, ImportError, RuntimeError)) or name in said:
            raise ValueError(f"{section}.{name}: {said}") from error
        raise ValueError(f"{section}.{name} cannot be {reprlib.repr(fields[name])} ({said})") from error


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    says_all = isinstance(error, (ValueError, OSError, ImportError, RuntimeError))
    return text if says_all else f"{type(error).__name__}: {text}"
