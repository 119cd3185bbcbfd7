"""Makes parallel text from text in one language."""

import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from .process import UsageError, check_engine, check_positive, use_memory_well
from .translate import check_penalty, sampling_options, search_options


if TYPE_CHECKING:
    from .test_sets import Languages


def backtranslate(
    *,
    model: list[str],
    input: Path,
    output: Path,
    forward: bool = False,
    source_language: str | None = None,
    target_language: str | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    max_tokens: int | None = None,
    sample: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    longest: int = 256,
    max_length_ratio: float = 3.0,
    chunk_lines: int = 4096,
    workers: int = 1,
    batch_tokens: int = 4096,
    device: str = "auto",
    precision: str = "float32",
    quantize: str | None = None,
) -> None:
    """Makes parallel training text from monolingual text, by translating it.

    The text becomes the target and its translation the source. With --forward it is the other way round, for
    self-training and distillation. The output is NAME.LANGUAGE.gz for both sides and NAME.report.json. Lines whose
    translation no model should learn from are left out on both sides, and counted in the report.

    Run it again to continue after an interruption: the files come out the same, with --sample too.

    Args:
        model: A run folder, a model's folder or USER/NAME on the Hub; several translate together, as an ensemble. For
            back-translation their direction is opposite to that of the model to be trained.
        input: Text file, plain or .gz, in the language that the model translates from.
        output: Folder to write to.
        forward: Make the text the source, and its translation the target.
        source_language: Code of the language that the model translates from; needed if the model has no recipe.
        target_language: Code of the language that the model translates into; needed if the model has no recipe.
        num_beams: Hypotheses kept in beam search; 1 is greedy. By default the model's own setting.
        length_penalty: The exponent alpha of the length penalty; by default the model's own.
        max_tokens: Maximum tokens in a translation; by default the model's own limit, 50 more than its source.
        sample: Draw translations at random instead of searching for the best.
        temperature: With --sample: divides the scores of tokens, so that below 1 likely ones become likelier.
        top_k: With --sample: draw from this many of the likeliest tokens; 0 is all.
        top_p: With --sample: draw from the likeliest tokens that together have this probability.
        seed: With --sample: a different number gives different draws; by default 0.
        longest: Maximum tokens on a side. A longer line is not translated.
        max_length_ratio: How many times as many tokens one side may have as the other, counting the end of sentence.
        chunk_lines: Lines to translate between saves.
        workers: Processes that translate side by side on a CPU, with one thread each.
        batch_tokens: Source tokens translated at a time.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
        precision: float32, or bfloat16, faster on processors made for it, but rounded differently. It must not change
            on resuming, so nothing is tried out here.
        quantize: int8: on a CPU, faster for large models, with weights rounded to 8 bits.
    """
    from tqdm import tqdm

    from ..data.encoding import PairLimits
    from ..run.digests import sha256_of_model
    from ..run.loading import find_model, load_engine
    from ..translation.synthetic import synthesize

    options = search_options(num_beams, None, length_penalty, max_tokens)
    options |= sampling_options(sample, temperature, top_k, top_p, seed, num_beams, length_penalty)
    check_positive(longest=longest, chunk_lines=chunk_lines, workers=workers, batch_tokens=batch_tokens)
    if not 1 <= max_length_ratio < math.inf:
        raise UsageError(f"--max-length-ratio must be at least 1 and finite, not {max_length_ratio:g}.")
    check_engine("torch", quantize, precision, device, precisions=("float32", "bfloat16"))
    asked = _languages(model, source_language, target_language)
    languages = asked.source, asked.target
    use_memory_well()
    engine, tokenizer = load_engine(model, "torch", device, int8=quantize is not None, precision=precision)
    check_penalty(options, engine)
    models = [{"path": str(Path(path)), "sha256": sha256_of_model(find_model(path))} for path in model]
    made_by = {"models": models, "quantize": quantize, "device": engine.device.type}
    if precision != "float32":  # folders begun before there was this option do not name it
        made_by["precision"] = precision
    with ExitStack() as stack:
        bars: list[tqdm] = []  # one, as soon as its length is known

        def show(more: int, lines: int) -> None:
            if not bars:
                bar = tqdm(unit="line", total=lines, initial=more, disable=not sys.stderr.isatty())
                bars.append(stack.enter_context(bar))
            else:
                bars[0].update(more)

        report = synthesize(
            engine, tokenizer, input, output, languages=languages, to=asked.to, forward=forward, seed=seed or 0,
            made_by=made_by,
            limits=PairLimits(longest, longest, max_length_ratio), chunk_lines=chunk_lines, workers=workers,
            batch_tokens=batch_tokens, on_progress=show, **options,
        )  # fmt: skip
    print(f"{report}\nFor a recipe: data.train = [{', '.join(str(output.resolve() / name) for name in report.files)}]")


def _languages(models: list[str], source: str | None, target: str | None) -> "Languages":
    """The languages that the models translate from and into, by their recipes or the options."""
    from ..data.languages import is_language_code
    from .test_sets import Languages, model_languages

    given = Languages(source, target)
    for path in models:
        given = model_languages(path, given)
    for name, code in (("source", given.source), ("target", given.target)):
        if code is None:
            raise UsageError(f"{models[0]} has no recipe that says its languages: give --{name}-language.")
        if not is_language_code(code):
            raise UsageError(f"{code!r} is not a language code, say 'de' or 'pt_BR'.")
    if given.source == given.target:
        raise UsageError(f"Source and target language are both {given.source!r}: give two different codes.")
    return given
