"""Tries a few decodings on the validation pairs of a finished run."""

import json
import logging
import re
import statistics
import textwrap
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..evaluation.metrics import bleu_for
from ..evaluation.scores import score_translations
from ..files import json_rows, text_lines, write_text
from ..run.folder import RunFolder
from ..run.loading import load_model
from ..run.recipe import Recipe, load_recipe
from ..translation import translate
from .rule import FIRST_DECODING


logger = logging.getLogger(__name__)

AS_TYPED = "as typed"  # the reason for fields that the user has set
_TRIED = "tried on the validation pairs"
MOST_TRIED_ON = 300  # validation pairs
_LONGER = 5  # tokens beyond the usual length: poor models do not know where to end


@dataclass(frozen=True)
class _Decoding:
    """A decoding to try: fields of `GenerationConfig`."""

    num_beams: int
    length_penalty: float
    no_repeat_ngram_size: int = 0  # 0: tokens may come again
    minimum_bayes_risk: bool = False

    def __str__(self) -> str:
        search = "greedy" if self.num_beams == 1 else f"{self.num_beams} beams, length penalty {self.length_penalty:g}"
        search += f", no {self.no_repeat_ngram_size} tokens twice" if self.no_repeat_ngram_size else ""
        return search + (", minimum Bayes risk" if self.minimum_bayes_risk else "")


_DECODINGS = [
    _Decoding(*each)
    for each in (
        (1, 1.0),
        (5, 1.0),
        (5, 1.5),
        (5, 1.0, 3),
        (5, 1.5, 3),
        (5, 2.0, 3),
        (8, 1.0, 0, True),
        (8, 1.5, 0, True),
    )
]


def choose_decoding(output: Path, recipe: Recipe, device: str = "auto") -> Recipe:
    """Tries a few decodings on the validation pairs of a finished run; returns the recipe with the best of them.

    Models of little text repeat themselves, do not know where to end, and end too soon in a wide search. So every
    decoding has a limit close to the usual length, and some forbid repeating three tokens. The best has the highest sum
    of chrF and BLEU: chrF alone favours translations that are too long, and BLEU alone is near 0 for all decodings of a
    poor model. The choice is written to `chosen.yaml`, and is made only once. No choice is made if the user has set or
    edited a field of the decoding.

    Args:
        output: The run folder.
        recipe: The run's recipe.
        device: Where to translate, as for `chosen_device`.
    """
    folder = RunFolder(output)
    text = folder.chosen.read_text(encoding="utf-8")
    section = re.search(r"^decoding:\n(?:[ \t].*\n|\n)*", text, re.MULTILINE)
    # The user may have edited the file, or set a field on resuming the run, which the recipe of a run keeps.
    as_chosen = load_recipe(folder.chosen).decoding == recipe.decoding == FIRST_DECODING
    if _TRIED in text or section is None or AS_TYPED in section[0] or not as_chosen:
        return recipe
    data = recipe.data
    if "validation" not in data.measured or len(data.target_languages) > 1 or data.context_sentences:
        logger.info("Decodings are tried only for one validation set, one target language and sentences on their own.")
        return recipe
    model, tokenizer = load_model(output, device)
    language = recipe.data.target_language
    metrics = ("chrf", bleu_for(language))
    path = folder.translations / "validation.jsonl"
    rows = [row for _, row in json_rows(path, text_lines(path))][:MOST_TRIED_ON]
    sources, references = ([row[side] for row in rows] for side in ("source", "reference"))
    lengths = ([len(ids) for ids in tokenizer(side).input_ids] for side in (sources, references))
    usual = statistics.median(target - source for source, target in zip(*lengths, strict=True))
    longest = max(0, round(usual)) + _LONGER
    scores: dict[_Decoding, list[float]] = {}
    for each in _DECODINGS:
        found = translate(model, tokenizer, sources, max_length_offset=longest, **asdict(each))
        scored = score_translations(found, [references], metrics, target_language=language)
        scores[each] = [score.value for score in scored]
        logger.info("%s: chrF %.2f, BLEU %.2f on validation.", each, *scores[each])
    best = max(scores, key=lambda each: sum(scores[each]))
    tried = "; ".join(f"{' + '.join(f'{value:.2f}' for value in values)} ({each})" for each, values in scores.items())
    decoding = {
        "num_beams": best.num_beams,
        "length_penalty": best.length_penalty,
        "length_penalty_type": "length",
        "max_length_offset": longest,
    }
    for name in ("no_repeat_ngram_size", "minimum_bayes_risk"):
        if value := getattr(best, name):
            decoding[name] = value
    lines = [
        *textwrap.wrap(f"{_TRIED}: {' + '.join(metrics)} {tried}", 110),
        f"translations have at most {longest} tokens more than their source; validation pairs differ by {usual:g}",
    ]
    lines = ["decoding:", *(f"  # {line}" for line in lines)]
    lines += [f"  {name}: {json.dumps(value)}" for name, value in decoding.items()]
    chosen = replace(recipe, decoding={**recipe.decoding, **decoding})
    # The recipe comes first, because `train --resume` reads it: killed after this, a run scores by the new decoding.
    write_text(folder.recipe, chosen.to_yaml())
    write_text(folder.chosen, text[: section.start()] + "\n".join([*lines, text[section.end() :]]))
    return chosen
