"""Cleans a dirty corpus."""

from pathlib import Path

from .process import UsageError, bars_of_steps, check_positive, use_memory_well


def clean(
    corpus: list[str],
    *,
    output: Path,
    source_language: str,
    target_language: str,
    score_models: list[str] | None = None,
    keep_best: float | None = None,
    min_score: float | None = None,
    skip: list[str] | None = None,
    max_characters: int = 1000,
    max_length_ratio: float = 2.5,
    min_letters: float = 0.4,
    language_odds: float = 10.0,
    max_other_script: float = 0.3,
    max_target_repeats: int = 5,
    workers: int | None = None,
    shard_pairs: int = 10_000,
    device: str = "cpu",
) -> None:
    """Cleans parallel text: mends pairs where possible, drops pairs that no model should learn from, and says why.

    It writes clean.LANGUAGE.gz for both sides, dropped.jsonl.gz with every dropped pair and its reason, and report.md,
    report.png and report.json. Run it again to continue after an interruption: the files come out the same.

    Args:
        corpus: Two line-aligned text files, source and target; or one .tsv, .jsonl or .parquet file, a folder saved by
            datasets, phrasebook:SPLIT:PAIRS, or "{hub: NAME, config: ..., split: ...}". Text may be .gz.
        output: Folder to write to.
        source_language: Code of the source's language, say en.
        target_language: Code of the target's language, say de.
        score_models: Two models, run folders or models' folders, that score each pair: one from source to target, then
            one from target to source.
        keep_best: With --score-models: share of the scored pairs to keep, say 0.9.
        min_score: With --score-models, instead of --keep-best: the lowest score to keep, 0 to 1.
        skip: Rules not to use, by the names in the report.
        max_characters: Maximum characters on a side.
        max_length_ratio: How many times as long one side may be as the other, with four characters added to both.
        min_letters: Share of a side's characters that must be letters.
        language_odds: Drop a text if another language is this many times likelier than its own.
        max_other_script: Share of a side's letters that may be in another script.
        max_target_repeats: Maximum pairs with the same target.
        workers: Processes; by default one per core.
        shard_pairs: Pairs saved at a time.
        device: Where the models of --score-models run: cpu, cuda, mps, or auto, the best there is.
    """
    from ..cleaning import CleaningSettings, clean

    check_positive(workers=workers, shard_pairs=shard_pairs, max_characters=max_characters)
    scoring = _scoring(score_models, keep_best, min_score, device, (source_language, target_language))
    try:
        settings = CleaningSettings(
            source_language,
            target_language,
            max_characters,
            max_length_ratio,
            min_letters,
            language_odds,
            max_other_script,
            max_target_repeats,
            tuple(skip or ()),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    use_memory_well()
    with bars_of_steps() as show:
        report = clean(
            _corpus(corpus),
            output,
            settings,
            scoring=scoring,
            workers=workers,
            shard_pairs=shard_pairs,
            on_progress=show,
        )
    files = ", ".join(str(output.resolve() / name) for name in list(report.files)[:2])
    print(f"{report}\nThe account is {output / 'report.md'}.\nFor a recipe: data.train = [{files}]")


def _corpus(words: list[str]):
    """The words as `load_corpus` takes them."""
    if len(words) > 2:
        raise UsageError(f"CORPUS is one word or two, a source and a target, not {len(words)}.")
    if len(words) == 1 and words[0].startswith("{"):
        import yaml

        try:
            return yaml.safe_load(words[0])
        except yaml.YAMLError as error:
            raise UsageError(f"CORPUS {words[0]} is not a mapping as recipes have it, {{hub: NAME}} say.") from error
    return words[0] if len(words) == 1 else words


def _scoring(models: list[str] | None, keep_best, min_score, device: str, languages: tuple[str, str]):
    """The scoring that the options ask for. Models with recipes must translate in the two directions."""
    from ..cleaning import Scoring
    from ..run.loading import chosen_device
    from .test_sets import Languages, model_languages

    try:
        scoring = Scoring.by(models, keep_best, min_score, "cpu" if models is None else chosen_device(device).type)
    except ValueError as error:
        message = str(error)
        for name in ("score_models", "keep_best", "min_score"):
            message = message.replace(name, f"--{name.replace('_', '-')}")
        raise UsageError(message) from error
    if scoring is None:
        return None
    for model, given in zip(models, (languages, languages[::-1]), strict=True):
        model_languages(model, Languages(*given))
    return scoring
