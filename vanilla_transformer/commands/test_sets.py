"""What `evaluate` and `compare` are about: references, sources, the translations of systems."""

import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from ..evaluation.metric_names import check_metric, lacks_spaces, needs_language
from ..evaluation.scores import Score, perplexity_scores
from ..evaluation.texts import Text, aligned, read_texts
from .process import UsageError
from .translation import translations_of


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Languages:
    """Codes of the languages translated from and into; None where nothing says which."""

    source: str | None
    target: str | None


@dataclass(frozen=True)
class ScoredSet:
    """What translations are scored on: a name, one reference or more, and the sources if they were given."""

    name: str
    references: list[Text]
    sources: Text | None
    languages: Languages

    @property
    def reference_lists(self) -> list[list[str]]:
        return [reference.segments for reference in self.references]

    def metrics(self, names: Sequence[str]) -> list[str]:
        """The names, each once, if there are such metrics and the language is known where one needs it.

        Raises:
            UsageError: A metric needs the target language, and nothing says which it is.
            ValueError: There is no such metric.
        """
        for name in names:
            check_metric(name)
            if needs_language(name) and self.languages.target is None:
                raise UsageError(f"{name} depends on the language: give --target-language, say de.")
        if self.languages.target and lacks_spaces(self.languages.target) and any("bleu" in name for name in names):
            logger.warning(
                "%s is written without spaces, where no BLEU here finds words: report chrf.", self.languages.target
            )
        return list(dict.fromkeys(names))


def read_set(
    test_set: str | None, references: Sequence[Path] | None, sources: Path | None, languages: Languages
) -> ScoredSet:
    """Reads what translations are scored on.

    Raises:
        UsageError: Neither a test set nor references were given, or both.
        FileNotFoundError: A file or dataset is missing.
        ValueError: Something is malformed, or texts do not belong together.
    """
    if (references is None) == (test_set is None):
        raise UsageError("Give --references FILE or --test-set NAME.")
    if test_set is not None:
        if sources is not None:
            raise UsageError("A test set has sources of its own: leave --sources out.")
        return _pairs(test_set, languages)
    target = languages.target or _ending(references[0])
    texts = [text for path in references for text in read_texts(path, "reference", target)]
    found = Languages(languages.source, target or texts[0].language)
    if sources is None:
        return ScoredSet(texts[0].name, aligned(texts), None, found)
    [source, *others] = read_texts(sources, "source", languages.source)
    if others:
        raise ValueError(f"{sources} holds several texts; --sources is one.")
    *texts, source = aligned([*texts, source])
    return ScoredSet(texts[0].name, texts, source, found)


def _ending(path: Path) -> str | None:
    """`de` of newstest2014.de or .de.gz."""
    code = Path(path.name.removesuffix(".gz")).suffix.removeprefix(".")
    return code if re.fullmatch("[a-z]{2}", code) else None


def _pairs(test_set: str, languages: Languages) -> ScoredSet:
    from ..data.corpora import load_corpus

    source, target = languages.source, languages.target
    if source is None or target is None:
        raise UsageError("--test-set needs --source-language and --target-language, say en and de.")
    corpus = _of_the_hub(test_set, source, target) if _is_of_the_hub(test_set) else test_set
    pairs = load_corpus(corpus, source, target)["translation"]
    sources, reference = ([pair[language] for pair in pairs] for language in (source, target))
    return ScoredSet(test_set, [Text(test_set, reference)], Text(test_set, sources), languages)


def _is_of_the_hub(test_set: str) -> bool:
    """Whether it can be NAME[:CONFIG[:SPLIT]], and no file in a folder that is there or that has a file's ending."""
    name = re.fullmatch(r"([\w-][\w.-]*/[\w.-]+)(:[^:/]*){0,2}", test_set)
    is_file = Path(test_set).suffix in (".jsonl", ".tsv", ".parquet", ".gz")
    return name is not None and not is_file and not Path(name[1]).parent.exists()


def _of_the_hub(test_set: str, source: str, target: str) -> dict[str, str]:
    """NAME[:CONFIG[:SPLIT]] as `load_corpus` takes it."""
    from datasets import get_dataset_config_names

    name, config, split = [*test_set.split(":"), "", ""][:3]
    if not config:
        configs = get_dataset_config_names(name)
        fitting = [each for each in configs if {source, target} <= set(re.split(r"[-_.]", each))] or configs
        if len(fitting) > 1:
            raise ValueError(f"{name} has the configurations {', '.join(configs)}: name one, as {name}:{configs[0]}.")
        [config] = fitting
    return {"hub": name, "config": config, "split": split or "test"}


def read_systems(paths: Sequence[Path], scored_set: ScoredSet) -> dict[str, list[str]]:
    """The translations of each file by its name, in the order of the references.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: Something is malformed, or does not belong to the references.
    """
    texts = [text for path in paths for text in read_texts(path, "hypothesis", scored_set.languages.target)]
    found: dict[str, list[str]] = {}
    for text in aligned([scored_set.references[0], *texts])[1:]:
        name = text.name
        while name in found:  # the files of two systems may have one name, in two folders
            name += "'"
        found[name] = text.segments
    return found


def model_languages(model: Path, given: Languages) -> Languages:
    """The languages given, else those of the recipe that the model was trained by.

    Raises:
        ValueError: What was given is not what the model translates from and into.
    """
    from ..run_folder import find_model
    from ..training.recipe import load_recipe

    path = find_model(model) / "recipe.yaml"
    if not path.is_file():
        return given
    data = load_recipe(path).data
    for name, wanted, learned in (
        ("source", given.source, data.source_language),
        ("target", given.target, data.target_language),
    ):
        if wanted is not None and wanted != learned:
            raise ValueError(
                f"{model} translates from {data.source_language!r} into {data.target_language!r}; the {name} language "
                f"is to be {wanted!r}."
            )
    return Languages(data.source_language, data.target_language)


def translate_set(models: list[Path], scored_set: ScoredSet, **options) -> list[str]:
    """What a model, or several together, makes of the sources.

    Raises:
        UsageError: There are no sources.
    """
    if scored_set.sources is None:
        raise UsageError("A model needs --sources FILE, or --test-set NAME, to translate.")
    found = translations_of(models, [scored_set.sources.segments], **options)
    return [hypotheses[0].text for _, hypotheses in found]


def perplexity_of(models: list[Path], scored_set: ScoredSet) -> list[Score]:
    """How well a model, or several together, foretells the first reference of each source."""
    from ..run_folder import load_ensemble
    from ..translation import score_pairs

    model, tokenizer = load_ensemble(models)
    references = scored_set.references[0].segments
    with tqdm(total=len(references), unit="pair", desc="perplexity", disable=not sys.stderr.isatty()) as bar:
        pairs = list(zip(scored_set.sources.segments, references, strict=True))
        scores = score_pairs(model, tokenizer, pairs, on_progress=bar.update)
    return perplexity_scores(
        [score.log_probability for score in scores],
        [score.tokens for score in scores],
        references,
        vocabulary_size=len(tokenizer),
        test_set=scored_set.name,
    )
