"""Constituency trees of sentences."""

import contextlib
import logging
import sys
from pathlib import Path

from .process import UsageError, use_memory_well
from .translation import input_lines, search_options


logger = logging.getLogger(__name__)


def parse(
    sentences: list[str] | None = None,
    *,
    model: Path,
    input: Path | None = None,
    output: Path | None = None,
    num_beams: int | None = None,
    batch_tokens: int = 4096,
) -> None:
    """Parses the sentences given, a file, or standard input: a tokenised sentence in, a tree in brackets out.

    The model is one that was trained on words and linearised trees, as by the recipe parsing_sample. Words are what
    stands between spaces. What it writes is made a tree whatever it is; how often that took repairs is said at the end.

    Args:
        sentences: Sentences to parse; without them, lines are read.
        model: A run folder or a model's folder.
        input: Text file to read; standard input if it is not given.
        output: Text file to write; standard output if it is not given.
        num_beams: Hypotheses kept in beam search; 1 is greedy. The model's own setting if it is not given.
        batch_tokens: Source tokens parsed at a time.
    """
    from tqdm import tqdm

    from ..files import replaced_file
    from ..run_folder import load_model
    from ..tasks.parsing import parse as parse_sentences
    from ..translation import as_they_come, in_blocks

    if sentences and input:
        raise UsageError("Give sentences or --input, not both.")
    options = {"batch_tokens": batch_tokens, **search_options(num_beams)}
    lines = sentences or input_lines(input)
    blocks = in_blocks(lines) if sentences or input else as_they_come(lines)
    use_memory_well()
    loaded, tokenizer = load_model(model)
    parsed = repaired = 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(replaced_file(output)) if output else sys.stdout
        bar = stack.enter_context(tqdm(unit="sentence", disable=not sys.stderr.isatty()))
        for block in blocks:
            found = parse_sentences(loaded, tokenizer, block, on_progress=bar.update, **options)
            file.writelines(f"{'' if each is None else each.tree}\n" for each in found)
            file.flush()
            trees = [each for each in found if each is not None]
            parsed, repaired = parsed + len(trees), repaired + sum(bool(each.repairs) for each in trees)
    if parsed:
        share = 100 * (parsed - repaired) / parsed
        logger.info("%s of %s outputs (%.1f %%) were well-formed.", f"{parsed - repaired:,}", f"{parsed:,}", share)
