"""From parallel text to a small fast model."""

from pathlib import Path

from .process import use_memory_well


def improve(recipe: str, *, output: Path | None = None, device: str = "auto", overrides: dict | None = None) -> None:
    """Makes the most of a corpus, in stages: back-translation, an ensemble, a small student, export in 8 bits.

    The recipe's section `improve` has the settings. Any field can be set on the command line: --improve.teachers 3
    --improve.target_text news.de.gz --improve.student.model.decoder_layers 2

    Run it again to continue after an interruption: finished stages are not repeated.

    Args:
        recipe: Name of a recipe (see `vanilla-transformer recipes`) or a YAML file.
        output: Folder for all stages; improved/RECIPE if it is not given.
        device: Where to train and translate: cpu, cuda, mps, or auto, the best there is.
    """
    from .. import improving

    use_memory_well()
    account = improving.improve(recipe, output or Path("improved") / Path(recipe).stem, overrides, device=device)
    print(account.read_text(encoding="utf-8"))
    print(f"The account is {account}.")
