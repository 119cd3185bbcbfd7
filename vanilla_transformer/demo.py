"""A page in the browser: translations with their scores, the search's options, and what every head looks at.

`vanilla-transformer demo MODEL` shows it. This file alone is a Space of the Hub as well: copied there as app.py, with
this package in requirements.txt, it shows the model that the Space's variable MODEL names.
"""

import base64
import os
import tempfile
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch

from vanilla_transformer.attention.weights import attentions
from vanilla_transformer.data.known_words import UnknownWords
from vanilla_transformer.data.languages import target_languages, towards
from vanilla_transformer.data.terms import knows_soft_terms
from vanilla_transformer.model.confidence_vanilla_transformer import Calibration
from vanilla_transformer.plots import plot_attention_maps
from vanilla_transformer.run.loading import calibration_of, find_model, load_model, word_counts_of
from vanilla_transformer.run.recipe import load_recipe
from vanilla_transformer.translation import Casing, Glossary, Punctuation, Spelling, translate_lines
from vanilla_transformer.translation.likelihood import Likelihood, likelihoods
from vanilla_transformer.translation.markup import KINDS


os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # gradio reports for the first time when it is imported

try:
    import gradio
except ImportError as error:
    raise ImportError('The page needs gradio: pip install "vanilla-transformer[demo]"') from error
from starlette.middleware import Middleware  # comes with gradio
from starlette.responses import PlainTextResponse

from vanilla_transformer.serving.connections import check_address  # needs uvicorn, which comes with gradio


MOST_CHARACTERS = MOST_TOKENS = 1000  # of a text, and of a translation: other users wait for it
SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}
ATTENTIONS = {"decoder on the source": "cross", "encoder": "encoder", "decoder on itself": "decoder"}
BEAM_SEARCH, SAMPLING = "beam search", "sampling"
ALL_HEADS = "all"
NO_MARKUP = "none"
MOST_BYTES = 100_000  # of a request
LANGUAGES = {
    "am": "Amharic", "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "gn": "Guarani", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian",
    "lv": "Latvian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian", "sv": "Swedish", "th": "Thai",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
STYLE = """
#text textarea, #translation textarea { min-height: 5.5rem }  /* the text's has one line, so that Enter translates */
/* each text in its own direction, Arabic from the right */
#text textarea, #translation textarea, #read textarea, .words,
#translations :is(td, [role=gridcell], td *, [role=gridcell] *) {
  unicode-bidi: plaintext; text-align: start
}
#translate.busy { opacity: .5 }
#attention { overflow-x: auto }
#attention img { max-width: 100%; height: auto }
@media (max-width: 600px) { #attention img { max-width: none; width: 640px } }  /* scrolled, not too small to read */
"""
# How sure the model is of a word: the least probability, the CSS class (a colour and a line), and the legend.
SURENESS = ((0.9, "sure", "90 % or more"), (0.5, "fairly-sure", "50 to 90 %"), (0.0, "guessed", "less than 50 %"))
STYLE += """
#confidence .words { font-size: 1.1rem; line-height: 2 }
#confidence .fairly-sure { background: #fff0b3; color: #000; border-bottom: 2px dotted #000 }
#confidence .guessed { background: #ffc9a8; color: #000; border-bottom: 3px double #000 }
"""
# During translation the button is pale: gradio's own progress sign would show an error a second time.
BUSY = "(...inputs) => { document.querySelector('#translate').classList.add('busy'); return inputs }"
NOT_BUSY = "() => { document.querySelector('#translate').classList.remove('busy'); return [] }"


class Pair(NamedTuple):
    """A text and its translation, as the model read and wrote them.

    Attributes:
        text, translation: The two.
        to: The language, with a model of several.
        ids: Token ids of the text with its soft terms annotated; None without such terms.
    """

    text: str
    translation: str
    to: str | None = None
    ids: list[int] | None = None


class Demo:
    """A model, and the functions that the page calls.

    Args:
        path: A run folder, a model's folder, or USER/NAME of the Hub.
    """

    def __init__(self, path: str | Path):
        self.path = path
        self.model, self.tokenizer = load_model(path)
        self.languages, self.examples = _languages_and_examples(path)

    def translate(
        self, text: str, search: str, num_beams: float, length_penalty: float, temperature: float, top_k: float,
        top_p: float, seed: float, max_tokens: float, wanted: float, glossary: str = "",
        terms: str = "hard", markup: str = NO_MARKUP, recase: bool = False, respell: bool = False,
        repunctuate: bool = False, to: str | None = None,
    ) -> tuple[str, list[list], gradio.Textbox, Pair]:  # fmt: skip
        """Returns the best translation; rows of rank, score and translation; the text as the model read it, shown
        where it differs from the text; and the pair whose attention is drawn.

        Args:
            text: The source.
            search: `BEAM_SEARCH`, with the next two arguments, or `SAMPLING`, with the four after them.
            num_beams: Hypotheses that are kept.
            length_penalty: Its exponent alpha.
            temperature: Divides the scores of tokens.
            top_k: Draw from this many of the likeliest tokens; 0 is all.
            top_p: Draw from the likeliest tokens that together have this probability.
            seed: Makes the draws repeatable; 0: they are not.
            max_tokens: Tokens of a translation; 0: the model's own limit.
            wanted: How many translations.
            glossary: Lines of source term, `=`, target term; see [`Glossary`].
            terms: How to follow it: hard, by the beam search, or soft, by a model that was trained for that.
            markup: The kind of markup that is put back into the translations: one of `KINDS`, or `NO_MARKUP`.
            recase: Translate capitals and headlines in sentence case; see [`Casing`].
            respell: Read mistyped words as the closest ones that the model has learned; see [`Spelling`].
            repunctuate: Translate a text that ends without punctuation with a full stop; see [`Punctuation`].
            to: The target language, with a model of several.

        Raises:
            gradio.Error: The text is empty or too long, or options do not go together. The page shows the message.
        """
        numbers = (num_beams, length_penalty, temperature, top_k, top_p, seed, max_tokens, wanted)
        if None in (text, search, glossary, *numbers):  # a field of the page was cleared
            raise gradio.Error("A value is missing.", print_exception=False)
        options = {"num_return_sequences": int(wanted), "return_dict_in_generate": search == BEAM_SEARCH}
        if max_tokens:
            options["max_new_tokens"] = int(max_tokens)
        if search == BEAM_SEARCH:
            options |= {"num_beams": int(num_beams), "length_penalty": length_penalty, "do_sample": False}
        else:
            options |= {"num_beams": 1, "do_sample": True, "top_k": int(top_k), "top_p": top_p}
            options |= {"temperature": temperature}
        try:
            if not text.strip():
                raise ValueError("There is no text to translate.")
            if len(text) > MOST_CHARACTERS:
                raise ValueError(f"The text has {len(text):,} characters: {MOST_CHARACTERS:,} at most.")
            if search == BEAM_SEARCH and wanted > num_beams:
                raise ValueError(f"{wanted:g} translations need as many hypotheses.")
            if search == SAMPLING:
                torch.manual_seed(int(seed)) if seed else torch.seed()
            if len(glossary) > MOST_CHARACTERS:
                raise ValueError(f"The glossary has {len(glossary):,} characters: {MOST_CHARACTERS:,} at most.")
            lines = [line for line in glossary.splitlines() if line.strip()]
            if not all("=" in line for line in lines):
                raise ValueError("Each line of the glossary is a source term, = and its target term.")
            entries = [line.partition("=")[::2] for line in lines]
            glossary = Glossary(entries) if entries else None
            options |= {"glossary": glossary, "terms": terms}
            kind = None if markup == NO_MARKUP else markup
            if kind is not None and (recase or respell or repunctuate):
                raise ValueError("A text with markup is read as it is: choose markup or another way to read it.")
            options |= {"casing": Casing(self._word_counts) if recase else None}
            options |= {"spelling": self._spelling if respell else None}
            options |= {"punctuation": Punctuation(self._word_counts) if repunctuate else None}
            [found] = translate_lines(self.model, self.tokenizer, [[text]], markup=kind, to=to, **options)
        except (ImportError, ValueError) as error:  # also, say, more tokens than the model has positions for
            raise gradio.Error(str(error), print_exception=False) from error
        scores = ["" if each.score is None else f"{each.score:.4f}" for each in found]
        best = found[0]
        rows = [list(row) for row in zip(range(1, len(found) + 1), scores, (each.text for each in found), strict=True)]
        if best.broken_markup:  # the reason quotes the text, which must not become tags of the message
            gradio.Warning(f"Its tags do not fit together: translated as text, not as {markup}.")
        shown = best.read.text if kind is None else text  # that markup is taken out goes without saying
        ids = None
        if glossary is not None and terms == "soft":
            ids = glossary.annotated(best.read.text.strip(), towards(self.tokenizer, to))
        pair = Pair(best.read.text.strip(), best.written, to, ids)
        return best.text, rows, gradio.Textbox(shown, visible=shown != text), pair

    def picture(self, pair: Pair | None, attention: str, layer: int, head: str) -> str:
        """The heads of a layer, or one of them, on a text and its translation, as HTML; empty without a translation.

        The HTML holds the picture itself: no file is kept, and no path shown.

        Args:
            pair: What `translate` returned.
            attention: One of `ATTENTIONS`.
            layer: Counted from 1.
            head: Counted from 1, or `ALL_HEADS`.
        """
        if pair is None:
            return ""
        text, translation, to, ids = pair
        tokenizer = towards(self.tokenizer, to)
        try:
            found = attentions(self.model, tokenizer, text, translation, source_ids=ids)
        except ValueError as error:  # a text that was translated in pieces, for it has more tokens than positions
            return f"<p>{escape(str(error))}</p>"
        weights, queries, keys = found.of(ATTENTIONS[attention])
        heads = None if head == ALL_HEADS else [int(head) - 1]
        title = f"Attention of the {attention}, layer {layer}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "attention.png")
            weights = weights[layer - 1].numpy()
            sides = SIDES[ATTENTIONS[attention]]
            plot_attention_maps(weights, queries, keys, path, heads=heads, sides=sides, title=title)
            picture = base64.b64encode(path.read_bytes()).decode("ascii")
        return f'<img src="data:image/png;base64,{picture}" alt="{title}">'

    def confidence(self, pair: Pair | None, wanted: bool) -> str:
        """How sure the model is of a translation and of each of its words, as HTML; empty if not wanted.

        Args:
            pair: What `translate` returned.
            wanted: Whether to show it.
        """
        if pair is None or not wanted:
            return ""
        text, translation, to, ids = pair
        calibration, options = self._calibration, {"sources": None if ids is None else [ids]}
        if calibration is not None:
            options |= {"dropout_samples": calibration.dropout_samples, "seed": calibration.seed}
        try:
            [found] = likelihoods(self.model, towards(self.tokenizer, to), [(text, translation)], **options)
        except ValueError as error:  # as in `picture`
            return f"<p>{escape(str(error))}</p>"
        said = "The model is not calibrated: what the probabilities of its words are worth is not known."
        if calibration is not None:
            good = f"that the translation is good (chrF of {calibration.threshold:.0f} or more)"
            said = f"<b>{calibration.confidence(found.tokens, found.samples):.0%}</b> is the probability {good}."
        if unknown := UnknownWords(self.tokenizer, self._word_counts)(text):
            said += f" The model has not learned: <b>{escape(', '.join(unknown))}</b>."
        legend = " · ".join(f'<span class="{name}">{name.replace("-", " ")}</span>: {of}' for _, name, of in SURENESS)
        return f'<p class="words" dir="auto">{_marked(translation, found)}</p><p>Words: {legend}</p><p>{said}</p>'

    @cached_property
    def _word_counts(self) -> dict[str, int] | None:
        return word_counts_of([self.path])

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self.tokenizer, self._word_counts or {})

    @cached_property
    def _calibration(self) -> Calibration | None:
        try:
            return calibration_of([self.path])
        except (FileNotFoundError, ValueError):
            return None

    def layers_and_heads(self, attention: str) -> tuple[gradio.Dropdown, gradio.Dropdown]:
        """The layers and heads to choose from."""
        config = self.model.config
        side = "encoder" if ATTENTIONS[attention] == "encoder" else "decoder"
        layers, heads = getattr(config, f"{side}_layers"), getattr(config, f"{side}_attention_heads")
        return (
            gradio.Dropdown(list(range(1, layers + 1)), value=layers, label="Layer", interactive=True, min_width=120),
            gradio.Dropdown(
                [ALL_HEADS, *map(str, range(1, heads + 1))], value=ALL_HEADS, label="Head", interactive=True,
                min_width=120,
            ),
        )  # fmt: skip

    def page(self) -> gradio.Blocks:
        """The page; `launch()` shows it."""
        settings = self.model.generation_config
        source, target = self.languages or ("", "")
        title = f"{source} to {target}" if self.languages else "Translation"
        with gradio.Blocks(title=title, analytics_enabled=False) as page:
            gradio.Markdown(f"# {title}\n`{self.path}` · {self.model.num_parameters():,} parameters")
            with gradio.Row():
                with gradio.Column():
                    # With one line Enter submits and Shift+Enter begins a new line; with more it is the other way.
                    text = gradio.Textbox(
                        label=f"Text in {source}" if source else "Text", lines=1, max_lines=20, elem_id="text",
                        placeholder=f"{f'{source} text' if source else 'Text'}. Enter translates, Shift+Enter begins a "
                        "new line.",
                    )  # fmt: skip
                    button = gradio.Button("Translate", variant="primary", elem_id="translate")
                    if self.examples:
                        gradio.Examples([[each] for each in self.examples], text, label="Examples")
                    knows_terms = knows_soft_terms(self.tokenizer)
                    languages = list(target_languages(self.tokenizer))
                    knows_words = self._word_counts is not None and find_spec("rapidfuzz") is not None
                    options = _options(settings.num_beams or 1, settings.length_penalty, knows_terms, knows_words)
                    options.append(
                        gradio.Radio(
                            languages,
                            value=(languages or [None])[0],
                            label="Into",
                            visible=bool(languages),
                            elem_id="to",
                        )
                    )
                with gradio.Column():
                    best = gradio.Textbox(
                        label=f"Translation into {target}" if target else "Translation", lines=3, buttons=["copy"],
                        elem_id="translation",
                    )  # fmt: skip
                    read = gradio.Textbox(label="Read as", visible=False, elem_id="read")
                    sure = gradio.Checkbox(False, label="Confidence of each word")
                    judged = gradio.HTML(elem_id="confidence")
                    table = gradio.Dataframe(
                        headers=["rank", "score", "translation"],
                        label="Translations",
                        elem_id="translations",
                        wrap=True,
                        column_widths=["17%", "30%", "53%"],
                    )
            pair = gradio.State()
            with gradio.Row():
                attention = gradio.Radio(
                    list(ATTENTIONS), value=next(iter(ATTENTIONS)), label="Attention of the", min_width=320
                )
                layer, head = self.layers_and_heads(attention.value)
            picture = gradio.HTML(elem_id="attention")

            # The model does one thing at a time.
            alone = {"concurrency_limit": 1, "concurrency_id": "model"}
            drawing = {"fn": self.picture, "inputs": [pair, attention, layer, head], "outputs": picture, **alone}
            asked = gradio.on(
                [button.click, text.submit], self.translate, [text, *options], [best, table, read, pair],
                api_name="translate", show_progress="hidden", js=BUSY, **alone,
            )  # fmt: skip
            asked.success(None, js=NOT_BUSY)
            asked.success(**drawing, api_name="attention")
            judging = {"fn": self.confidence, "inputs": [pair, sure], "outputs": judged, **alone}
            asked.success(**judging, api_name="confidence")
            sure.input(**judging, api_visibility="private")
            # An error shows once, as a message, and clears the translation before it.
            asked.failure(
                lambda: ("", [], gradio.Textbox("", visible=False), None, "", ""), None,
                [best, table, read, pair, picture, judged], api_visibility="private", show_progress="hidden",
                js=NOT_BUSY,
            )  # fmt: skip
            chosen = attention.input(self.layers_and_heads, attention, [layer, head], api_visibility="private")
            chosen.then(**drawing, api_visibility="private")
            gradio.on([layer.input, head.input], **drawing, api_visibility="private")
        return page


def _marked(translation: str, found: Likelihood) -> str:
    """A translation as HTML that shows how sure the model is of each word."""
    parts, end = [], 0
    for each in found.words:
        start = translation.find(each.word, end)
        if start < 0:  # not written as in the text: say, with blanks inside
            continue
        kind = next(name for least, name, _ in SURENESS if each.probability >= least)
        parts.append(escape(translation[end:start]))
        end = start + len(each.word)
        parts.append(f'<span class="{kind}" title="{each.probability:.0%}">{escape(each.word)}</span>')
    return "".join(parts) + escape(translation[end:])


def _options(
    num_beams: int, length_penalty: float | None, knows_terms: bool, knows_words: bool
) -> list[gradio.components.Component]:
    """The options of `Demo.translate`, as they stand on the page."""
    wide = {"min_width": 240}  # two side by side on a screen, one on a telephone
    with gradio.Accordion("Options", open=False):
        search = gradio.Radio([BEAM_SEARCH, SAMPLING], value=BEAM_SEARCH, label="Search")
        with gradio.Row():
            beams = gradio.Slider(
                1, max(16, num_beams), num_beams, step=1, label="Hypotheses", info="of the beam search", **wide
            )
            alpha = 1.0 if length_penalty is None else length_penalty
            penalty = gradio.Slider(
                min(-2, alpha),
                max(3, alpha),
                alpha,
                step=0.1,
                label="Length penalty",
                info="of the beam search",
                **wide,
            )
        with gradio.Row():
            temperature = gradio.Slider(0.1, 2, 1, step=0.1, label="Temperature", info="of sampling", **wide)
            top_k = gradio.Slider(0, 100, 0, step=1, label="Top k", info="of sampling; 0 is all", **wide)
            top_p = gradio.Slider(0.05, 1, 1, step=0.05, label="Top p", info="of sampling", **wide)
            about = "of sampling; 0: never the same"
            seed = gradio.Number(0, precision=0, minimum=0, maximum=2**32 - 1, label="Seed", info=about, **wide)
        with gradio.Row():
            tokens = gradio.Number(
                0, precision=0, minimum=0, maximum=MOST_TOKENS, label="Most tokens", info="0: the model's limit", **wide
            )
            wanted = gradio.Slider(1, 16, min(4, num_beams), step=1, label="Translations", info="to show", **wide)
        info = "one source = target per line; target1|target2: either of them; nothing after the =: the term stays"
        glossary = gradio.Textbox("", label="Glossary", lines=2, placeholder="dog = Hund", info=info)
        about = "hard: the search finds only translations with them; soft: the model reads them, and mostly follows"
        terms = gradio.Radio(["hard", "soft"], value="hard", label="Terms", info=about, visible=knows_terms)
        about = "of the text: its tags and placeholders are put back into the translation"
        markup = gradio.Radio([NO_MARKUP, *KINDS], value=NO_MARKUP, label="Markup", info=about)
        about = "translated as sentences, and given their capitals back"
        recase = gradio.Checkbox(False, label="Capitals and headlines", info=about)
        about = "read as the closest words that the model has learned"
        respell = gradio.Checkbox(False, label="Mistyped words", info=about, visible=knows_words)
        about = "added before the text is translated, and taken off its translations"
        repunctuate = gradio.Checkbox(False, label="Missing full stop", info=about)
    search_options = [search, beams, penalty, temperature, top_k, top_p, seed, tokens, wanted]
    return [*search_options, glossary, terms, markup, recase, respell, repunctuate]


def _languages_and_examples(path: str | Path) -> tuple[tuple[str, str] | None, list[str]]:
    """The languages and examples in the model's recipe, if it has a readable one."""
    try:
        recipe = load_recipe(find_model(path) / "recipe.yaml")
    except (OSError, ValueError):
        return None, []
    sides = recipe.data.source_languages, recipe.data.target_languages
    source, target = (", ".join(LANGUAGES.get(code.lower(), code) for code in codes) for codes in sides)
    return (source, target), [each for each in recipe.evaluation.examples if len(each) <= MOST_CHARACTERS][:4]


class BoundedRequests:
    """Refuses files, for which gradio has routes on every page, and requests of more than `MOST_BYTES`."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if scope["path"].rstrip("/").rpartition("/")[2] in ("upload", "upload_progress"):
            return await PlainTextResponse("This page takes no files.", 404)(scope, receive, send)
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or not length.isdigit() or int(length[:20]) > MOST_BYTES:
            message = f"A request may have at most {MOST_BYTES:,} bytes and must state its length."
            return await PlainTextResponse(message, 413)(scope, receive, send)
        return await self.app(scope, receive, send)


def show(path: str | Path, host: str | None = None, port: int | None = None) -> None:
    """Shows the page until it is interrupted.

    Args:
        path: As for [`Demo`].
        host: The address to listen at; None: the Hub's own in a Space, else 127.0.0.1.
        port: None: the first free one from 7860.

    Raises:
        OSError: No page can be shown there.
    """
    if host is not None or port is not None:  # gradio would try a hundred ports, or call every error a taken port
        check_address((host or "127.0.0.1").strip("[]"), port or 0)
    if host is not None and ":" in host:  # gradio makes a URL of it
        host = f"[{host.strip('[]')}]"
    # The machine's own fonts: the page fetches nothing from anywhere else.
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])
    page = Demo(path).page().queue(max_size=64)
    # quiet: otherwise it recommends share=True, which no command has.
    _, url, _ = page.launch(
        server_name=host, server_port=port, share=False, theme=theme, css=STYLE, footer_links=["api"], quiet=True,
        max_file_size=0, app_kwargs={"middleware": [Middleware(BoundedRequests)]}, prevent_thread_lock=True,
    )  # fmt: skip
    print(f"* Running on local URL:  {url.rstrip('/')} (Ctrl-C ends it)", flush=True)
    page.block_thread()


if __name__ == "__main__":
    if "MODEL" not in os.environ:
        raise SystemExit("The variable MODEL must say which model: USER/NAME of the Hub, or a folder.")
    show(os.environ["MODEL"])
