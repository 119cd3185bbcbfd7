"""Turns how sure a model is into a number that means something."""

import json as json_format
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .process import UsageError, check_seed, use_memory_well
from .translate import search_options


if TYPE_CHECKING:
    from ..translation.calibrating import Measured


logger = logging.getLogger(__name__)

_COVERAGES = (1.0, 0.9, 0.8, 0.6, 0.4, 0.2)


def calibrate(
    model: str,
    *,
    references: list[Path] | None = None,
    sources: Path | None = None,
    test_set: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    threshold: str = "50",
    dropout_samples: int = 0,
    seed: int | None = None,
    held_out: float = 0.5,
    num_beams: int | None = None,
    device: str = "auto",
    picture: Path | None = None,
    json: bool = False,
) -> None:
    """Calibrates a model's confidence, the probability that a translation is good, for `translate --confidence`.

    It translates text whose references are known, fits the probability to one part of it, and says how well it holds
    for the rest. Use validation text: neither training text nor a test set. It writes confidence.json beside the
    model's weights (in the cache for a model on the Hub); `publish` uploads it too.

    Args:
        model: A run folder, a model's folder or USER/NAME on the Hub.
        references: Files of reference translations, each with one for every sentence: text, .jsonl or .sgm.
        sources: File of the sentences to translate: text, .jsonl or .sgm.
        test_set: Sources and references together, as for `evaluate`.
        source_language: Language code of the sources; only --test-set needs it.
        target_language: Language code of the translations; only --test-set needs it.
        threshold: Sentence chrF, from 0 to 100, from which a translation is good; or median, that of the part used for
            fitting.
        dropout_samples: Also judge by this many passes with dropout, 10 or more for good results; 0 for none. Every
            translation with a confidence then takes as many passes.
        seed: With --dropout-samples: a different number gives different passes; by default 0.
        held_out: Share of the sentences that are not used for fitting, only for measuring.
        num_beams: Hypotheses kept in beam search; by default the model's own setting. Use the same for translating.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        picture: File, .png or .svg, for the reliability diagram and the risk-coverage curve.
        json: Print JSON instead of a table.
    """
    from tqdm import tqdm

    from ..files import write_json
    from ..hub import is_of_the_hub
    from ..model.confidence_vanilla_transformer import CONFIDENCE, sha256_of_weights
    from ..plots import plot_confidence
    from ..plots.figures import check_picture
    from ..run.loading import find_model, load_engine
    from ..translation import calibrating
    from .test_sets import Languages, model_languages, read_set

    if picture is not None:
        check_picture(picture)
    limit = _limit(threshold)
    if not 0 < held_out < 1:
        raise UsageError(f"--held-out must be above 0 and below 1, not {held_out:g}.")
    check_seed(seed)
    if seed is not None and not dropout_samples:
        raise UsageError("--seed is for --dropout-samples.")
    languages = model_languages(model, Languages(source_language, target_language))
    scored_set = read_set(test_set, references, sources, languages)
    if scored_set.sources is None:
        raise UsageError("Give --sources FILE, or --test-set NAME.")
    use_memory_well()
    folder = find_model(model)
    loaded, tokenizer = load_engine([folder], device=device)
    texts, passes = scored_set.sources.segments, {"dropout_samples": dropout_samples, "seed": seed or 0}
    with tqdm(total=len(texts), unit="sentence", disable=not sys.stderr.isatty()) as bar:
        options = {"contexts": scored_set.before, "to": scored_set.languages.to, "on_progress": bar.update}
        options |= passes | search_options(num_beams)
        judged = calibrating.judged_translations(loaded, tokenizer, texts, scored_set.reference_lists, **options)
    record = {"set": scored_set.name, "num_beams": num_beams or loaded.generation_config.num_beams}
    record["weights_sha256"] = sha256_of_weights(folder)
    found, measured = calibrating.calibrate(judged, threshold=limit, held_out=held_out, **passes, **record)
    if picture is not None:
        plot_confidence(
            measured.confidences, measured.good, picture, good_means=f"chrF of {found.threshold:.4g} or more"
        )
    if is_of_the_hub(model) and (folder / CONFIDENCE).is_symlink():  # in the cache, to a file of every revision
        (folder / CONFIDENCE).unlink()
    write_json(folder / CONFIDENCE, found.to_json())
    print(json_format.dumps(found.to_json(), indent=2) if json else _table(found, measured))
    logger.info("Saved %s.", folder / CONFIDENCE)


def _limit(threshold: str) -> float | None:
    """The chrF that the option names; None: the median."""
    if threshold == "median":
        return None
    try:
        found = float(threshold)
    except ValueError:
        found = -1.0
    if not 0 < found <= 100:
        raise UsageError(f"--threshold must be above 0 and at most 100, or median, not {threshold!r}.")
    return found


def _table(found, measured: "Measured") -> str:
    """What was fitted and how well it does, for people."""
    from ..evaluation.confidence import most_confident
    from .evaluate import aligned_columns

    record, fitted = found.record["held_out"], found.record["fitted_on"]
    correlations = [record["pearson"], record["spearman"]]
    pearson, spearman = ("none" if each is None else f"{each:.3f}" for each in correlations)
    rows = [["most confident", "chrF on average", "not good"]]
    for coverage in _COVERAGES:
        chosen = most_confident(measured.confidences, coverage)
        chrf = sum(measured.chrf[i] for i in chosen) / len(chosen)
        bad = sum(not measured.good[i] for i in chosen) / len(chosen)
        rows.append([f"{coverage:.0%}", f"{chrf:.1f}", f"{bad:.1%}"])
    return "\n".join(
        [
            f"Good is a chrF of {found.threshold:.1f} or more: {fitted['good']:.0%} of the {fitted['sentences']:,} "
            f"sentences that this was fitted to, and {record['good']:.0%} of the {record['sentences']:,} held out.",
            "On those held out:",
            f"expected calibration error {record['expected_calibration_error']:.3f} in {record['bins']} bins; "
            f"perfect calibration shows {record['expected_calibration_error_by_chance']:.3f} on so few",
            f"correlation with chrF {pearson} (Pearson), {spearman} (Spearman)",
            *aligned_columns(rows),
        ]
    )
