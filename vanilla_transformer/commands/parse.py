"""Constituency trees of sentences."""

import contextlib
import logging
import sys
from pathlib import Path

from .process import check_positive, use_memory_well
from .translate import input_blocks, search_options


logger = logging.getLogger(__name__)


def parse(
    sentences: list[str] | None = None,
    *,
    model: str,
    input: Path | None = None,
    output: Path | None = None,
    num_beams: int | None = None,
    batch_tokens: int = 4096,
    device: str = "auto",
) -> None:
    """Parses the sentences given, a file, or standard input: a tokenised sentence in, a tree in brackets out.

    The model is one trained on words and linearised trees, as by the recipe parsing_sample. Words are separated by
    spaces. Whatever the model writes is made into a tree; the last message says how often that needed repairs.

    Args:
        sentences: Sentences to parse; without them, lines are read.
        model: A run folder, a model's folder or USER/NAME on the Hub.
        input: Text file to read; standard input if it is not given.
        output: Text file to write; standard output if it is not given.
        num_beams: Hypotheses kept in beam search; 1 is greedy. The model's own setting if it is not given.
        batch_tokens: Source tokens parsed at a time.
        device: Where the model runs: cpu, cuda, mps, or auto, the best there is.
    """
    from tqdm import tqdm

    from ..files import replaced_file
    from ..parsing.parse import parse as parse_sentences
    from ..run.loading import load_model

    check_positive(batch_tokens=batch_tokens)
    options = {"batch_tokens": batch_tokens, **search_options(num_beams)}
    blocks = input_blocks(sentences, input)
    use_memory_well()
    loaded, tokenizer = load_model(model, device)
    parsed = well_formed = 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(replaced_file(output)) if output else sys.stdout
        bar = stack.enter_context(tqdm(unit="sentence", disable=not sys.stderr.isatty()))
        for block in blocks:
            found = parse_sentences(loaded, tokenizer, block, on_progress=bar.update, **options)
            file.writelines(f"{'' if each is None else each.tree}\n" for each in found)
            file.flush()
            trees = [each for each in found if each is not None]
            parsed, well_formed = parsed + len(trees), well_formed + sum(not each.repairs for each in trees)
    if parsed:
        share = 100 * well_formed / parsed
        logger.info("%s of %s outputs (%.1f %%) were well-formed.", f"{well_formed:,}", f"{parsed:,}", share)
