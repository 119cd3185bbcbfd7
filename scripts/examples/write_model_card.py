"""Writes the card of a finished run: python scripts/examples/write_model_card.py RUN NAME TITLE COMMAND"""

import shutil
import sys
from pathlib import Path

from vanilla_transformer.files import write_text
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.sharing.model_card import model_card


def main(run: str, name: str, title: str, command: str) -> None:
    cards = Path(__file__).resolve().parents[2] / "model_cards"
    picture = f"{name}-learning-curve.png"
    card = model_card(run, title=title, repository=f"USER/{name}", command=command, picture=picture)
    cards.mkdir(exist_ok=True)
    shutil.copy(RunFolder(run).learning_curve, cards / picture)
    write_text(cards / f"{name}.md", card)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
