"""A page in the browser: translations with their scores, the search's options, and what every head looks at.

`vanilla-transformer demo MODEL` shows it. This file alone is a Space of the Hub as well: copied there as app.py, with
this package in requirements.txt, it shows the model that the Space's variable MODEL names.
"""

import os
import tempfile
from pathlib import Path

import torch

from vanilla_transformer.evaluation.attention import attentions
from vanilla_transformer.plots import plot_attention_maps
from vanilla_transformer.run_folder import load_model
from vanilla_transformer.translation import translate_lines


os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before it is imported, when it would report the first time

try:
    import gradio
except ImportError as error:
    raise ImportError('The page needs gradio: pip install "vanilla-transformer[demo]"') from error
from PIL import Image  # comes with gradio


MOST_CHARACTERS = MOST_TOKENS = 1000  # of a text, and of a translation: the others wait for it
SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}
ATTENTIONS = {"decoder on the source": "cross", "encoder": "encoder", "decoder on itself": "decoder"}
BEAM_SEARCH, SAMPLING = "beam search", "sampling"
ALL_HEADS = "all"


class Demo:
    """What the page asks for.

    Args:
        path: A run folder, a model's folder, or USER/NAME of the Hub.
    """

    def __init__(self, path: str | Path):
        self.path = path
        self.model, self.tokenizer = load_model(path)

    def translate(
        self, text: str, search: str, num_beams: float, length_penalty: float, temperature: float, top_k: float,
        top_p: float, seed: float, max_tokens: float, wanted: float,
    ) -> tuple[str, list[list], tuple[str, str]]:  # fmt: skip
        """The best translation, rows of rank, score and translation, and the pair that attention is drawn of.

        Args:
            text: What stands in the box.
            search: `BEAM_SEARCH`, with the next two arguments, or `SAMPLING`, with the four behind them.
            num_beams: Hypotheses that are kept.
            length_penalty: Its exponent alpha.
            temperature: Divides the scores of tokens.
            top_k: Draw from so many of the likeliest tokens; 0 is all.
            top_p: Draw from the likeliest tokens that together have this probability.
            seed: Makes the draws repeatable; 0: they are not.
            max_tokens: Tokens of a translation; 0: the model's own limit.
            wanted: How many translations.

        Raises:
            gradio.Error: What the page shows: there is no text or too much of it, or options do not go together.
        """
        if not text.strip():
            raise gradio.Error("There is no text to translate.", print_exception=False)
        if len(text) > MOST_CHARACTERS:
            raise gradio.Error(
                f"The text has {len(text):,} characters: {MOST_CHARACTERS:,} at most.", print_exception=False
            )
        options = {"num_return_sequences": int(wanted), "return_dict_in_generate": search == BEAM_SEARCH}
        if search == BEAM_SEARCH:
            if wanted > num_beams:
                raise gradio.Error(f"{wanted:g} translations need as many hypotheses.", print_exception=False)
            options |= {"num_beams": int(num_beams), "length_penalty": length_penalty, "do_sample": False}
        else:
            if seed:
                torch.manual_seed(int(seed))
            options |= {"num_beams": 1, "do_sample": True, "top_k": int(top_k), "top_p": top_p}
            options |= {"temperature": temperature}
        if max_tokens:
            options |= {"max_new_tokens": int(max_tokens)}
        try:
            [found] = translate_lines(self.model, self.tokenizer, [[text]], **options)
        except ValueError as error:  # say, more tokens than the model has positions for
            raise gradio.Error(str(error), print_exception=False) from error
        scores = ["" if each.score is None else f"{each.score:.4f}" for each in found]
        rows = [[rank, scores[rank - 1], each.text] for rank, each in enumerate(found, start=1)]
        return found[0].text, rows, (text, found[0].text)

    def picture(self, pair: tuple[str, str] | None, attention: str, layer: int, head: str) -> Image.Image | None:
        """The heads of a layer, or one of them, on a text and its translation; None before there is one.

        Args:
            pair: Text and translation.
            attention: One of `ATTENTIONS`.
            layer: Counted from 1.
            head: Counted from 1, or `ALL_HEADS`.
        """
        if pair is None:
            return None
        weights, queries, keys = attentions(self.model, self.tokenizer, *pair).of(ATTENTIONS[attention])
        heads = None if head == ALL_HEADS else [int(head) - 1]
        title = f"Attention of the {attention}, layer {layer}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "attention.png")
            weights = weights[layer - 1].numpy()
            sides = SIDES[ATTENTIONS[attention]]
            plot_attention_maps(weights, queries, keys, path, heads=heads, sides=sides, title=title)
            with Image.open(path) as picture:
                return picture.copy()

    def layers_and_heads(self, attention: str) -> tuple[gradio.Dropdown, gradio.Dropdown]:
        """The choices that there are for an attention."""
        config = self.model.config
        side = "encoder" if ATTENTIONS[attention] == "encoder" else "decoder"
        layers, heads = getattr(config, f"{side}_layers"), getattr(config, f"{side}_attention_heads")
        return (
            gradio.Dropdown(list(range(1, layers + 1)), value=layers, label="Layer", interactive=True),
            gradio.Dropdown([ALL_HEADS, *map(str, range(1, heads + 1))], label="Head", interactive=True),
        )

    def page(self) -> gradio.Blocks:
        """The page; `launch()` shows it."""
        settings = self.model.generation_config
        a_day = 24 * 3600  # seconds that pictures are kept
        with gradio.Blocks(title="Translation", analytics_enabled=False, delete_cache=(3600, a_day)) as page:
            gradio.Markdown(f"# Translation\n`{self.path}` · {self.model.num_parameters():,} parameters")
            with gradio.Row():
                with gradio.Column():
                    text = gradio.Textbox(label="Text", lines=3)
                    button = gradio.Button("Translate", variant="primary")
                    options = _options(settings.num_beams or 1, settings.length_penalty)
                with gradio.Column():
                    best = gradio.Textbox(label="Translation", lines=3, buttons=["copy"], elem_id="translation")
                    table = gradio.Dataframe(
                        headers=["rank", "score", "translation"],
                        label="Translations",
                        wrap=True,
                        column_widths=["12%", "18%", "70%"],
                    )
            pair = gradio.State()
            with gradio.Row():
                attention = gradio.Radio(list(ATTENTIONS), value=next(iter(ATTENTIONS)), label="Attention of the")
                layer, head = self.layers_and_heads(attention.value)
            picture = gradio.Image(
                label="Attention", interactive=False, format="png", elem_id="attention", buttons=["download"]
            )

            # The model does one thing at a time, whoever asks.
            alone = {"concurrency_limit": 1, "concurrency_id": "model"}
            drawing = {"fn": self.picture, "inputs": [pair, attention, layer, head], "outputs": picture, **alone}
            asked = gradio.on(
                [button.click, text.submit], self.translate, [text, *options], [best, table, pair],
                api_name="translate", **alone,
            )  # fmt: skip
            asked.success(**drawing, api_name="attention")
            chosen = attention.input(self.layers_and_heads, attention, [layer, head], api_visibility="private")
            chosen.then(**drawing, api_visibility="private")
            gradio.on([layer.input, head.input], **drawing, api_visibility="private")
        return page


def _options(num_beams: int, length_penalty: float | None) -> list[gradio.components.Component]:
    """The options of `Demo.translate`, as they stand on the page."""
    with gradio.Accordion("Options", open=False):
        search = gradio.Radio([BEAM_SEARCH, SAMPLING], value=BEAM_SEARCH, label="Search")
        with gradio.Row():
            beams = gradio.Slider(1, max(16, num_beams), num_beams, step=1, label="Hypotheses (beam search)")
            alpha = 1.0 if length_penalty is None else length_penalty
            penalty = gradio.Slider(-2, 3, alpha, step=0.1, label="Length penalty (beam search)")
        with gradio.Row():
            temperature = gradio.Slider(0.1, 2, 1, step=0.1, label="Temperature (sampling)")
            top_k = gradio.Slider(0, 100, 0, step=1, label="Top k (sampling; 0 is all)")
            top_p = gradio.Slider(0.05, 1, 1, step=0.05, label="Top p (sampling)")
            seed = gradio.Number(0, precision=0, minimum=0, label="Seed (sampling; 0: never the same)")
        with gradio.Row():
            tokens = gradio.Number(
                0, precision=0, minimum=0, maximum=MOST_TOKENS, label="Tokens at most (0: the model's limit)"
            )
            wanted = gradio.Slider(1, 16, min(4, num_beams), step=1, label="Translations to show")
    return [search, beams, penalty, temperature, top_k, top_p, seed, tokens, wanted]


def show(path: str | Path, host: str | None = None, port: int | None = None) -> None:
    """Shows the page until it is interrupted.

    Args:
        path: As for [`Demo`].
        host: The address to listen at; None: the Hub's in a Space, else 127.0.0.1.
        port: None: the first free one from 7860.
    """
    # Fonts of the machine itself: the page asks nobody else for anything.
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])
    Demo(path).page().launch(server_name=host, server_port=port, share=False, theme=theme, footer_links=["api"])


if __name__ == "__main__":
    if "MODEL" not in os.environ:
        raise SystemExit("The variable MODEL must say which model: USER/NAME of the Hub, or a folder.")
    show(os.environ["MODEL"])
