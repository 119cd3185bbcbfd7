"""Adapts a model to a domain."""

import logging
import shlex
import sys
from pathlib import Path

from .process import UsageError, is_first_process, prepare_for_training


logger = logging.getLogger(__name__)


def adapt(
    model: str,
    *,
    output: Path,
    replay: list[str] | None = None,
    replay_weight: float = 1.0,
    old: list[str] | None = None,
    floor: float = 1.0,
    no_floor: bool = False,
    grow_vocabulary: str = "auto",
    lora_rank: int = 0,
    device: str = "auto",
    plain_process: bool = False,
    overrides: dict | None = None,
) -> None:
    """Trains a model further for a domain, and reports what it gained there and lost elsewhere.

    Give the domain's text as fields of a recipe: --data.train "[new.en, new.de]" --data.validation "[dev.en, dev.de]".
    Any other field can be set in the same way: --training.learning_rate 1e-4

    Run it again to continue after an interruption. The output is a run folder, with adaptation.md beside the model.

    Args:
        model: One of our models: a run folder, a model's folder, or USER/NAME on the Hub.
        output: Folder for the new run.
        replay: Pairs like those that the model was trained on, to mix in: one file of pairs, or two of lines.
        replay_weight: How often each replayed pair occurs, relative to each new pair.
        old: Validation pairs of the same kind; by default those that the model's recipe names, if they are here.
        floor: Choose no checkpoint that has lost more BLEU than this on the old validation pairs.
        no_floor: Choose by the new validation pairs alone.
        grow_vocabulary: Add at most this many pieces of the new text to the vocabulary; auto: all that occur at least
            100 times there, at most as many as it has.
        lora_rank: Train only LoRA adapters of this rank and the rows of new pieces; 0 trains the whole model.
        device: Where to train: cpu, cuda, mps, or auto, the best there is.
        plain_process: Leave memory allocation and matrix products as Python and torch have them by default.
    """
    from ..adapting import AdaptSettings
    from ..adapting import adapt as adapt_model
    from ..sharing.publishing import publish

    growth: int | str = int(grow_vocabulary) if grow_vocabulary.isdecimal() else grow_vocabulary
    corpora = {}
    for name, words in (("replay", replay), ("old", old)):
        if words is not None and len(words) > 2:
            raise UsageError(f"--{name} takes one file of pairs, or two of lines, not {len(words)}.")
        if words is not None and words[0].startswith("["):
            raise UsageError(f"--{name} takes the names of files without brackets and commas: --{name} OLD.en OLD.de")
        corpora[name] = words[0] if words is not None and len(words) == 1 else words
    if replay is None and replay_weight != 1:
        raise UsageError("--replay-weight is for --replay: give it, or leave the weight out.")
    if no_floor and floor != 1:
        raise UsageError("Give --floor or --no-floor, not both.")
    settings = AdaptSettings(
        **corpora,
        replay_weight=replay_weight,
        floor=None if no_floor else floor,
        grow_vocabulary=growth,
        lora_rank=lora_rank,
    )
    if not plain_process and (done := prepare_for_training(device)):
        logger.info("%s", done)
    command = shlex.join(["vanilla-transformer", *sys.argv[1:]])
    told = {"command": command, "command_to_resume": command, "publish": publish, "show_progress": True}
    account = adapt_model(model, output, settings, overrides or {}, device=device, **told)
    if is_first_process():
        print(account.read_text(encoding="utf-8"))
        print(f"The model is in {output}, the account in {account}.")
