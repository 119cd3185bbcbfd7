"""From parallel text to a small fast model."""

from pathlib import Path

from .process import check_positive, use_memory_well


def improve(
    recipe: str,
    *,
    output: Path | None = None,
    workers: int = 1,
    device: str = "auto",
    overrides: dict | None = None,
) -> None:
    """Makes the most of a corpus, in stages: back-translation, an ensemble, a small student, export in 8 bits.

    The recipe's section `improve` has the settings. Any field can be set on the command line: --improve.teachers 3
    --improve.target_text news.de.gz --improve.student.model.decoder_layers 2

    Run it again to continue after an interruption: finished stages are not repeated.

    Args:
        recipe: Name of a recipe (see `vanilla-transformer recipes`) or a YAML file.
        output: Folder for all stages; improved/RECIPE if it is not given.
        workers: Models to train side by side if they do not depend on each other, each with its share of the cores
            and its own memory; on a CPU also the processes that translate (not on Windows). The messages of all but
            the first go to a file.
        device: Where to train and translate: cpu, cuda, mps, or auto, the best there is.
    """
    from .. import improving

    check_positive(workers=workers)
    use_memory_well()
    folder = output or Path("improved") / Path(recipe).stem
    account = improving.improve(recipe, folder, overrides, device=device, workers=workers)
    print(account.read_text(encoding="utf-8"))
    print(f"The account is {account}.")
