"""What `evaluate` and `compare` read: references, sources, the translations of systems."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path

from ..data.context import Context, contexts_of
from ..data.forms import FORMS, texts_in_form
from ..data.known_words import load_word_counts
from ..evaluation.domain import Domain, domain_of
from ..evaluation.metrics import build_metric, metric_named, without_words
from ..evaluation.robustness import CLEAN, FormScore, scores_by_form
from ..evaluation.scores import Score, perplexity_scores
from ..evaluation.texts import Text, aligned, read_texts
from ..files import json_rows, text_lines
from ..run.folder import RunFolder
from .process import UsageError
from .translate import scores_of_pairs, translations_of


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Languages:
    """Codes of the source and target languages; None where unknown.

    `to` is the language to ask the model for, and `context_sentences` is how many preceding sentences are context.
    """

    source: str | None
    target: str | None
    to: str | None = None
    context_sentences: int = 0


@dataclass(frozen=True)
class ScoredSet:
    """The data that translations are scored on: a name, one reference or more, and the sources if given."""

    name: str
    references: list[Text]
    sources: Text | None
    languages: Languages
    contexts: list[Context] | None = None  # of the sources, if documents do not end at blank ones
    with_blanks: tuple[Text, list[int]] | None = None  # first reference as in its file, and which lines are pairs

    @property
    def reference_lists(self) -> list[list[str]]:
        return [reference.segments for reference in self.references]

    @property
    def language_argument(self) -> dict[str, str]:
        """The argument of scores that names the target language; undetermined if it is unknown."""
        return {"target_language": self.languages.target or "und"}

    @property
    def sources_argument(self) -> dict[str, list[str] | None]:
        """The argument of scores that has the sources."""
        return {"sources": None if self.sources is None else self.sources.segments}

    @property
    def before(self) -> list[Context] | None:
        """The sentences before each source that a model reads; None if it finds them itself."""
        sentences = self.languages.context_sentences
        if self.contexts is not None or not sentences:
            return self.contexts
        if self.sources.ids is None:
            return contexts_of(self.sources.segments, sentences)
        segments = zip(self.sources.ids, self.sources.segments, strict=True)
        documents = groupby(segments, key=lambda each: each[0][0])  # an id is (document, number of the segment)
        return [before for _, each in documents for before in contexts_of([text for _, text in each], sentences)]

    def in_form(self, form: str) -> "ScoredSet":
        """The same set with the sources in one of `FORMS`, and the references too where that changes both sides."""
        changed = [self.sources, *self.references] if FORMS[form].both_sides else [self.sources]
        texts = [replace(text, segments=texts_in_form(form, text.segments)) for text in changed]
        references = texts[1:] or self.references
        changed_set = replace(self, name=f"{self.name} ({form})", sources=texts[0], references=references)
        if self.contexts is None:
            return changed_set
        latest: dict[str, str] = {}  # a sentence may come again, with other mistakes
        contexts = []
        for source, changed_source, before in zip(self.sources.segments, texts[0].segments, self.contexts, strict=True):
            contexts.append(tuple(latest.get(text, text) for text in before))
            latest[source.strip()] = changed_source
        return replace(changed_set, contexts=contexts)

    def metrics(self, names: Sequence[str]) -> list[str]:
        """The names, each once, after checking them."""
        for name in names:
            if metric_named(name).needs_language and self.languages.target is None:
                raise UsageError(f"{name} depends on the language: give --target-language, say de.")
            if metric_named(name).needs_sources and self.sources is None:
                raise UsageError(f"{name} reads the sources too: give --sources FILE.")
            if metric_named(name).one_reference and len(self.references) > 1:
                raise UsageError(
                    f"{name} compares with one reference, not {len(self.references)}: name other --metrics, or leave "
                    "references out."
                )
            build_metric(name, self.languages.target or "")  # if it lacks something, this fails before work is lost
        if self.languages.target and (wordless := without_words(names, self.languages.target)):
            logger.warning(
                "%s is written without spaces, and %s cannot find words in it: report chrf and sacrebleu_char.",
                self.languages.target, ", ".join(wordless),
            )  # fmt: skip
        return list(dict.fromkeys(names))


def read_set(
    test_set: str | None, references: Sequence[Path] | None, sources: Path | None, languages: Languages
) -> ScoredSet:
    """Reads the data that translations are scored on: a test set, or references and perhaps sources."""
    if (references is None) == (test_set is None):
        raise UsageError("Give --references FILE or --test-set NAME.")
    if test_set is not None:
        if sources is not None:
            raise UsageError("A test set has sources of its own: leave --sources out.")
        return _pairs(test_set, languages)
    ending = Path(references[0].name.removesuffix(".gz")).suffix.removeprefix(".")  # `de` of newstest2014.de
    target = languages.target or (ending if re.fullmatch("[a-z]{2}", ending) else None)
    texts = [text for path in references for text in read_texts(path, "reference", target)]
    found = replace(languages, target=target or texts[0].language)
    if sources is None:
        return ScoredSet(texts[0].name, aligned(texts), None, found)
    [source, *others] = read_texts(sources, "source", languages.source)
    if others:
        raise ValueError(f"{sources} holds several texts; --sources is one.")
    *texts, source = aligned([*texts, source])
    scored_set = ScoredSet(texts[0].name, texts, source, found)
    return _pairs_alone(scored_set) if found.context_sentences else scored_set


def _pairs_alone(scored_set: ScoredSet) -> ScoredSet:
    """The set without blank lines, which end documents and are no pairs."""
    texts = [scored_set.sources, *scored_set.references]
    rows = zip(*(text.segments for text in texts), strict=True)
    pairs = [i for i, row in enumerate(rows) if any(map(str.strip, row))]
    sources, *references = (_chosen(text, pairs) for text in texts)
    before = scored_set.before
    found = {"references": references, "sources": sources, "contexts": [before[i] for i in pairs]}
    return replace(scored_set, **found, with_blanks=(texts[1], pairs))


def _chosen(text: Text, places: Sequence[int]) -> Text:
    ids = None if text.ids is None else [text.ids[i] for i in places]
    return replace(text, segments=[text.segments[i] for i in places], ids=ids)


def _pairs(test_set: str, languages: Languages) -> ScoredSet:
    from ..data.corpora import read_corpus

    source, target = languages.source, languages.target
    if source is None or target is None:
        raise UsageError("--test-set needs --source-language and --target-language, say en and de.")
    # NAME[:CONFIG[:SPLIT]] of the Hub, unless it is a file in a folder that exists or has a file's ending.
    of_the_hub = re.fullmatch(r"([\w-][\w.-]*/[\w.-]+)(:[^:/]*){0,2}", test_set)
    is_file = Path(test_set).suffix in (".jsonl", ".tsv", ".parquet", ".gz")
    if of_the_hub and not is_file and not Path(of_the_hub[1]).parent.exists():
        corpus = _of_the_hub(test_set, source, target)
    else:
        corpus = test_set
    found = read_corpus(corpus, source, target, context_sentences=languages.context_sentences)
    sources, reference = map(list, zip(*found.pairs, strict=True))
    return ScoredSet(test_set, [Text(test_set, reference)], Text(test_set, sources), languages, found.contexts)


def _of_the_hub(test_set: str, source: str, target: str) -> dict[str, str]:
    """NAME[:CONFIG[:SPLIT]] as `load_corpus` takes it."""
    from datasets import get_dataset_config_names

    from ..hub import persistently

    name, config, split = [*test_set.split(":"), "", ""][:3]
    if not config:
        configs = persistently(lambda: get_dataset_config_names(name), name, patience=0)
        fitting = [each for each in configs if {source, target} <= set(re.split(r"[-_.]", each))] or configs
        if len(fitting) > 1:
            raise ValueError(f"{name} has the configurations {', '.join(configs)}: name one, as {name}:{configs[0]}.")
        [config] = fitting
    return {"hub": name, "config": config, "split": split or "test"}


def read_systems(paths: Sequence[Path], scored_set: ScoredSet) -> dict[str, list[str]]:
    """The translations of each file by its name, in the order of the references."""
    texts = [text for path in paths for text in read_texts(path, "hypothesis", scored_set.languages.target)]
    found: dict[str, list[str]] = {}
    reference, pairs = scored_set.with_blanks or (scored_set.references[0], None)
    for text in aligned([reference, *texts])[1:]:
        add_system(found, text.name, (text if pairs is None else _chosen(text, pairs)).segments)
    return found


def add_system(systems: dict[str, list[str]], name: str, segments: list[str]) -> None:
    """Adds a system's translations. Files in two folders may have the same name: the second one gets a mark."""
    while name in systems:
        name += "'"
    systems[name] = segments


def model_languages(model: str, given: Languages) -> Languages:
    """The languages in the model's recipe, which those given must agree with; without a recipe those given."""
    from ..data.context import context_settings
    from ..data.languages import target_languages
    from ..run.loading import find_model, load_its_tokenizer
    from ..run.recipe import load_recipe

    found = find_model(model)
    path = found / "recipe.yaml"
    if not path.is_file():
        tokenizer = load_its_tokenizer(found)
        context = max(given.context_sentences, context_settings(tokenizer).sentences)
        several = target_languages(tokenizer)
        if several and given.target not in several:
            raise UsageError(f"{model} translates into {', '.join(several)}: say which by --target-language.")
        return replace(given, to=given.target if several else given.to, context_sentences=context)
    data = load_recipe(path).data
    context = max(given.context_sentences, data.context_sentences)
    if len(data.target_languages) > 1:
        if given.target not in data.target_languages:
            raise UsageError(
                f"{model} translates into {', '.join(data.target_languages)}: say which by --target-language."
            )
        return Languages(given.source or data.source_language, given.target, given.target, context)
    for name, known in (("source", data.source_languages), ("target", [data.target_language])):
        wanted = getattr(given, name)
        if wanted is not None and wanted not in known:
            raise ValueError(
                f"{model} translates from {' or '.join(map(repr, data.source_languages))} into "
                f"{data.target_language!r}; the {name} language is to be {wanted!r}."
            )
    return Languages(given.source or data.source_language, data.target_language, context_sentences=context)


def translate_set(models: list[str], scored_set: ScoredSet, **options) -> list[str]:
    """Translations of the sources by a model, or by several together."""
    check_has_sources(scored_set)
    asked = {"to": scored_set.languages.to, "contexts": scored_set.before}
    found = translations_of(models, [scored_set.sources.segments], **asked, **options)
    return [hypotheses[0].text for _, hypotheses in found]


def check_has_sources(scored_set: ScoredSet) -> None:
    if scored_set.sources is None:
        raise UsageError("A model needs --sources FILE, or --test-set NAME, to translate.")


def scores_in_forms(
    models: list[str], scored_set: ScoredSet, forms: Sequence[str], metrics: Sequence[str], resamples: int, **options
) -> list[FormScore]:
    """Scores of a model, or of several together, on the set as it is and in each form."""
    check_has_sources(scored_set)
    sets = {CLEAN: scored_set} | {form: scored_set.in_form(form) for form in forms}
    blocks, contexts = [each.sources.segments for each in sets.values()], None
    if scored_set.before is not None:
        contexts = chain.from_iterable(each.before for each in sets.values())
    found = translations_of(models, blocks, contexts=contexts, to=scored_set.languages.to, **options)
    texts = (hypotheses[0].text for _, hypotheses in found)
    return scores_by_form(
        {form: list(islice(texts, len(each.sources.segments))) for form, each in sets.items()},
        {form: each.reference_lists for form, each in sets.items()},
        metrics,
        test_sets={form: each.name for form, each in sets.items()},
        sources={form: each.sources.segments for form, each in sets.items()},
        resamples=resamples,
        **scored_set.language_argument,
    )


def domains_of(model: str, scored_set: ScoredSet, device: str = "auto") -> list[Domain]:
    """How far the set lies outside what a model has seen; for comparison its own validation set too, if it is here.

    A run folder keeps the validation set among its translations. Empty if a text of the set is longer than the model
    has positions.
    """
    from ..run.loading import find_model, load_its_tokenizer

    check_has_sources(scored_set)
    found, sets = find_model(model), [scored_set]
    counts, tokenizer = load_word_counts(found), load_its_tokenizer(found)
    source, target = scored_set.languages.source, scored_set.languages.target
    for name in ("validation", f"validation_{source}-{target}"):  # the latter where there are several
        kept = RunFolder(model).translations / f"{name}.jsonl"
        if kept.is_file():
            rows = [row for _, row in json_rows(kept, text_lines(kept))]
            sides = [Text(name, [row[side] for row in rows]) for side in ("source", "reference")]
            contexts = [tuple(row["context"]) for row in rows] if all("context" in row for row in rows) else None
            sets.append(ScoredSet(name, [sides[1]], sides[0], scored_set.languages, contexts))
    domains = []
    for each in sets:
        try:
            perplexity = perplexity_of([model], each, device)[0].value
        except ValueError as error:  # a text is longer than the model's positions
            logger.warning("Nothing can be said about the domain of %s: %s", each.name, error)
            if each is scored_set:
                return []
            continue
        domains.append(domain_of(each.name, each.sources.segments, perplexity, counts, tokenizer))
    return domains


def perplexity_of(models: list[str], scored_set: ScoredSet, device: str = "auto") -> list[Score]:
    """How well a model, or several together, predicts the first reference of each source."""
    references = scored_set.references[0].segments
    pairs = list(zip(scored_set.sources.segments, references, strict=True))
    asked = {"to": scored_set.languages.to, "contexts": scored_set.before}
    scores, tokenizer = scores_of_pairs(models, pairs, device, "perplexity", **asked)
    found = [score.log_probability for score in scores], [score.tokens for score in scores]
    return perplexity_scores(*found, references, vocabulary_size=len(tokenizer), test_set=scored_set.name)
