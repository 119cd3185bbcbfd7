"""Sections that cards share: what the model is and how to use it, and text made safe for Markdown."""

import json
import re
from collections.abc import Sequence

from ..model.classification_vanilla_transformer import VanillaTransformerForSequenceClassification
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..run.recipe import Recipe


CITATION = """\
```bibtex
@inproceedings{vaswani2017attention,
  title     = {Attention Is All You Need},
  author    = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and
               Gomez, Aidan N. and Kaiser, {\\L}ukasz and Polosukhin, Illia},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {30},
  year      = {2017},
  url       = {https://arxiv.org/abs/1706.03762}
}
```"""


def is_classifier(config: VanillaTransformerConfig) -> bool:
    """Whether a saved model classifies texts instead of translating."""
    return VanillaTransformerForSequenceClassification.__name__ in (config.architectures or ())


def languages(recipe: Recipe) -> dict[str, str | list[str]]:
    """A card's language fields. The Hub sorts models by bare languages, and keeps regions apart: "pt", and "pt-BR"."""
    codes = [each.replace("_", "-") for each in (*recipe.data.source_languages, *recipe.data.target_languages)]
    bare = list(dict.fromkeys(code.split("-")[0].lower() for code in codes))
    if recipe.is_parser:
        return {"language": bare[0]}
    found = {"language": bare}
    if regional := list(dict.fromkeys(code for code in codes if "-" in code)):
        found["language_bcp47"] = regional
    return found


def architecture(config: VanillaTransformerConfig) -> str:
    """The kind and size of a model, in a sentence; where encoder and decoder differ, `2 + 4 heads` says how."""

    def both(name: str) -> str:
        sides = dict.fromkeys(f"{getattr(config, f'{side}_{name}')}" for side in ("encoder", "decoder"))
        return " + ".join(sides)

    widths = {"d_k": config.to_dict()["head_dim"], "d_v": config.to_dict()["value_head_dim"]}
    given = "".join(f", {name} {width}" for name, width in widths.items() if width is not None)
    return (
        'The encoder-decoder Transformer of "Attention Is All You Need" '
        f"({'pre-norm' if config.norm_first else 'post-norm, as in the paper'}): {config.encoder_layers} + "
        f"{config.decoder_layers} layers, d_model {config.d_model}, {both('attention_heads')} heads{given}, d_ff "
        f"{both('ffn_dim')}, a vocabulary of {config.vocab_size:,}."
    )


_WITH_PACKAGE = """\
## How to use it

With the package `vanilla-transformer`, which runs no code of this repository:
"""
_WITHOUT_IT_FOR_SEVERAL = (
    "Without it, transformers runs the code that lies beside the weights, if you allow that. A token in front of the "
    "source names the target language:"
)
_WITHOUT_IT = "Without it, transformers runs the code that lies beside the weights, if you allow that:"


def how_to_use(repository: str, recipe: Recipe | None, into: Sequence[str] = ()) -> str:
    """Lines that translate in the recipe's languages, or parse, with the package and without it.

    Without a recipe, `into` has the target languages if there are several.
    """
    if recipe and recipe.is_parser:
        return _how_to_parse(repository)
    targets = recipe.data.target_languages if recipe else into
    task, wanted, several = "translation", "", len(targets) > 1
    if several:
        wanted = f', tgt_lang="{targets[0]}"'
    elif recipe:  # the task's name may have no hyphen
        task += f"_{recipe.data.source_language}_to_{recipe.data.target_language}".replace("-", "_")
    sentence = (recipe.evaluation.examples if recipe else None) or ["The dog is old."]
    text = json.dumps(sentence[0], ensure_ascii=False)
    imports, tagged, given = "", "", "**batch"
    if several:
        tag = f'tokenizer.get_added_vocab()["<2{targets[0]}>"]'
        tagged = f"ids = torch.cat((torch.tensor([[{tag}]]), batch.input_ids), dim=1)\n"
        imports, given = "import torch\n", "ids"
    return f"""\
{_WITH_PACKAGE}
```python
import vanilla_transformer  # gives transformers 5 the architecture, and its translation pipeline back
from transformers import pipeline

translator = pipeline("{task}", model="{repository}")
print(translator({text}{wanted}))
```

{_WITHOUT_IT if not several else _WITHOUT_IT_FOR_SEVERAL}

```python
{imports}from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repository}", trust_remote_code=True)
model = AutoModelForSeq2SeqLM.from_pretrained("{repository}", trust_remote_code=True)
batch = tokenizer([{text}], return_tensors="pt")
{tagged}print(tokenizer.batch_decode(model.generate({given}), skip_special_tokens=True))
```

transformers 5 has no "translation" task. Without this package or `trust_remote_code=True`,
`pipeline("translation", ...)` and `pipeline(model="{repository}")` raise an error."""


def how_to_classify(repository: str, text: str = "The dog is old.") -> str:
    """Lines that classify a text, with the package and without it."""
    return f"""\
{_WITH_PACKAGE}
```python
import vanilla_transformer  # gives transformers the architecture
from transformers import pipeline

classifier = pipeline("text-classification", model="{repository}")
print(classifier("{text}"))
```

{_WITHOUT_IT}

```python
from transformers import pipeline

classifier = pipeline("text-classification", model="{repository}", trust_remote_code=True)
print(classifier("{text}"))
```"""


def _how_to_parse(repository: str) -> str:
    sentence = "The company said it expects a loss ."
    return f"""\
{_WITH_PACKAGE}
```sh
vanilla-transformer parse --model {repository} "{sentence}"
```

```python
from vanilla_transformer.run.loading import load_model
from vanilla_transformer.parsing.parse import parse

model, tokenizer = load_model("{repository}")
[found] = parse(model, tokenizer, ["{sentence}"])
print(found.tree, found.repairs)
```"""


def recipe_section(recipe: Recipe) -> str:
    return f"## Recipe\n\n{fenced(recipe.to_yaml().rstrip(), 'yaml')}"


def markdown_table(head: list[str], rows: list[list[str]], numbers: range | tuple = ()) -> str:
    """A table whose columns with these numbers are aligned to the right."""
    rule = ["---:" if column in numbers else "---" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def line(text: str) -> str:
    """Text in one line."""
    return " ".join(text.split())


def as_text(text: str) -> str:
    """Text in one line, with Markdown escaped so that it is shown as it is."""
    return re.sub(r"[\\`*<\[\]|~&]|(?<!\w)_|_(?!\w)", r"\\\g<0>", line(text))


def fenced(text: str, language: str = "") -> str:
    """Text as a block of code, in a fence longer than any in it."""
    fence = "`" * max(3, *(len(quotes) + 1 for quotes in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{text}\n{fence}"


def in_table(text: str) -> str:
    """Code in a cell of a table: even between backquotes, a bar would end the cell."""
    return "`" + text.replace("|", "\\|") + "`"
