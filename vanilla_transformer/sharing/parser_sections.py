"""What the card of a parser says otherwise than that of a translator."""

from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..training.recipe import Recipe
from .card_sections import architecture, as_text


SCORES = (
    "`evalb` is EVALB's labelled bracketing F1 by the rules of COLLINS.prm. Every sentence counts: a malformed output "
    "is mended before it is scored, and the detail says how many needed none."
)

LIMITS = (
    "## What it is for, and what not\n\nResearch and teaching: it shows what the paper's model learns of syntax from "
    "the data below, and from nothing else. It expects sentences that are tokenised like them, in the style of the "
    "same texts. Its tree is a guess even where it looks right, and nothing says how sure it is. No sentences or trees "
    "of the treebank are shown here: most treebanks may not be passed on."
)


def what_a_parser_is(config: VanillaTransformerConfig, recipe: Recipe) -> str:
    """What it does, what it is and where its weights come from."""
    return (
        "Makes constituency trees of tokenised sentences, by writing them as sequences as if it translated (section "
        f"6.3 of the paper). {as_text(recipe.description)}\n\n{architecture(config)} Trained from random weights."
    )


def how_to_parse(repository: str) -> str:
    """Lines that parse a sentence, on the command line and in Python."""
    sentence = "The company said it expects a loss ."
    return f"""\
## How to use it

With the package `vanilla-transformer`, which runs no code of this repository:

```sh
vanilla-transformer parse --model {repository} "{sentence}"
```

```python
from vanilla_transformer.run_folder import load_model
from vanilla_transformer.tasks.parsing import parse

model, tokenizer = load_model("{repository}")
[found] = parse(model, tokenizer, ["{sentence}"])
print(found.tree, found.repairs)
```"""
