"""The parts of the reference that are made of the code when the site is built, so that they cannot differ from it.

A line `<!-- generated: commands -->` of a page is replaced by what `commands()` returns, and so on: see `PARTS`.
"""

import argparse
import dataclasses
import inspect
import os
import re
import textwrap
import types
import typing
from collections.abc import Iterator

from transformers import GenerationConfig, Seq2SeqTrainingArguments

import vanilla_transformer
from vanilla_transformer import _HOMES
from vanilla_transformer.command_line import COMMANDS, command_parser
from vanilla_transformer.data.forms import FORMS, texts_in_form
from vanilla_transformer.data.mixture import CorpusSettings
from vanilla_transformer.evaluation.comet import MODEL as COMET_MODEL
from vanilla_transformer.evaluation.metrics import METRICS, build_metric
from vanilla_transformer.improving import ImproveSettings
from vanilla_transformer.model.checks_vanilla_transformer import OUR_GENERATION_FIELDS, UNSUPPORTED
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.generation_vanilla_transformer import paper_generation_config
from vanilla_transformer.run.recipe import _OPEN_SECTIONS, DataSettings, EvaluationSettings, Recipe
from vanilla_transformer.training.arguments import UNDER_NOAM, WITHOUT_EFFECT, VanillaTransformerTrainingArguments


PUBLIC = {name: home for home, names in _HOMES.items() for name in names}
"""Names that can be imported from the package, with the module of each."""

# What the page on Python shows beside them: useful, and documented where it lies.
ALSO_DOCUMENTED = {
    "vanilla_transformer.attention.weights": (
        "AlignmentHead", "Attentions", "WordAlignment", "align_words", "attentions",
    ),
    "vanilla_transformer.cleaning": (
        "clean", "CleaningSettings", "CleaningReport", "Scoring", "check_pair", "dual_cross_entropy_scores",
    ),
    "vanilla_transformer.data.augmentation": ("Augmentation",),
    "vanilla_transformer.data.batch_stream": ("TokenBatchStream",),
    "vanilla_transformer.data.context": ("ContextSettings", "context_settings", "contexts_of"),
    "vanilla_transformer.data.corpora": ("Corpus", "PairStream", "TextCorpus"),
    "vanilla_transformer.data.encoding": ("PairLimits",),
    "vanilla_transformer.data.forms": ("Form", "texts_in_form"),
    "vanilla_transformer.data.guided_alignment": ("GuidedAlignment",),
    "vanilla_transformer.data.languages": ("language_tag", "target_languages", "towards", "tempered"),
    "vanilla_transformer.data.mixture": ("CorpusSettings", "Mixture", "open_mixture"),
    "vanilla_transformer.data.subword_dropout": ("BPEDropout",),
    "vanilla_transformer.data.phrases": ("phrase_pairs",),
    "vanilla_transformer.data.terms": ("TermAnnotation", "TermLexicon", "learn_lexicon"),
    "vanilla_transformer.evaluation.evaluate_metrics": ("module_path",),
    "vanilla_transformer.adapting": ("AdaptSettings", "adapt"),
    "vanilla_transformer.choosing": (
        "Choice", "TextFacts", "choose", "choose_decoding", "chosen_recipe", "facts_of", "measure_speeds",
    ),
    "vanilla_transformer.evaluation.domain": ("Domain", "domain_of"),
    "vanilla_transformer.evaluation.confidence": ("Bin", "calibration_error", "reliability", "risk_coverage"),
    "vanilla_transformer.evaluation.robustness": ("FormScore", "scores_by_form"),
    "vanilla_transformer.improving": ("improve", "ImproveSettings"),
    "vanilla_transformer.parsing.linearised_trees": ("ReadTree", "linearise", "read_linearised"),
    "vanilla_transformer.parsing.parse": ("parse",),
    "vanilla_transformer.parsing.trees": ("Tree",),
    "vanilla_transformer.run.recipe": ("DataSettings", "EvaluationSettings"),
    "vanilla_transformer.training.muon": ("Muon",),
    "vanilla_transformer.translation.calibrating": ("Judged", "Measured", "calibrate", "judged_translations"),
    "vanilla_transformer.translation.decoding": ("Decoding",),
    "vanilla_transformer.translation.glossary": ("FoundTerm", "Term", "UsedTerm"),
    "vanilla_transformer.translation.likelihood": ("Likelihood", "WordProbability", "likelihoods"),
    "vanilla_transformer.translation.markup": ("MarkedLine", "put_together", "take_apart", "text_of"),
    "vanilla_transformer.translation.packed": ("pack_linear",),
}  # fmt: skip

_HEADINGS = {
    "model": "Models",
    "data": "Text and vocabulary",
    "training": "Training",
    "run": "Recipes",
    "translation": "Translation",
    "evaluation": "Scores",
    "export": "Export",
}


# ------------------------------------------------------------------------------------------------------------ commands


def commands() -> str:
    """Every command as its `--help` has it."""
    parser = command_parser(COMMANDS)
    [group] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "100"  # argparse's own measure of a line
    try:
        return "\n\n".join(_command(name, command) for name, command in group.choices.items())
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    usage = textwrap.dedent(parser.format_usage().replace("usage: ", " " * 7, 1)).rstrip()
    options = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    options.sort(key=lambda action: (bool(action.option_strings), action.dest == "debug"))  # words come first
    texts = [_help(option.help.replace("%%", "%")) + _notes(option) for option in options]
    entries = "\n\n".join(map(_entry, map(_spelling, options), texts))
    return f"## {name}\n\n{_help(parser.description)}\n\n```text\n{usage}\n```\n\n{entries}"


def _help(text: str) -> str:
    """A text of `--help` as Markdown, with a full stop, with its options as code."""
    text = text if text.endswith((".", "...")) or "\n" in text else f"{text}."
    parts = re.split(r"(`[^`]+`)", _escaped(text))
    parts[::2] = [re.sub(r"(?<![\w-])--\w[\w.-]*\w", r"`\g<0>`", part) for part in parts[::2]]
    return "".join(parts)


def _spelling(action: argparse.Action) -> str:
    if not action.option_strings:
        return action.dest
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {action.metavar or action.dest.upper()}"


def _notes(action: argparse.Action) -> str:
    notes = " *Required.*" if action.option_strings and action.required else ""
    if isinstance(action, argparse._AppendAction):
        notes += " *May be given several times.*"
    return notes


# -------------------------------------------------------------------------------------------------------------- recipe


def recipe() -> str:
    """Every field of a recipe, by section."""
    told = documented(Recipe)
    parts = [_entry("description: str = ''", _escaped(told["description"]))]
    parts += ["## data", _escaped(told["data"]), *_fields(DataSettings)]
    parts += ["### Several training corpora", "Each in the list `data.train` has these.", *_fields(CorpusSettings)]
    parts += ["## tokenizer", _escaped(told["tokenizer"]), *_fields(vanilla_transformer.TokenizerSettings)]
    parts += ["## model", _escaped(told["model"]), *_model_fields()]
    parts += ["## training", _escaped(told["training"]), *_training_fields()]
    parts += ["## decoding", _escaped(told["decoding"]) + " They are listed in [Generation](generation.md)."]
    parts += ["## evaluation", _escaped(told["evaluation"]), *_fields(EvaluationSettings)]
    parts += ["## improve", "For the command `improve`; others skip this section.", *_fields(ImproveSettings)]
    return "\n\n".join(parts)


def _fields(kind: type) -> Iterator[str]:
    told, hints = documented(kind), typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        yield _entry(_declared(field.name, hints[field.name], _default_of(field)), _escaped(told[field.name]))


def _model_fields() -> Iterator[str]:
    told = documented(VanillaTransformerConfig)
    told["attn_implementation"] = "Which attention runs: `sdpa`, which is torch's own, or `eager`, the plain formula."
    defaults = {field.name: _default_of(field) for field in dataclasses.fields(VanillaTransformerConfig)}
    for name, hint in _OPEN_SECTIONS["model"]().items():
        yield _entry(_declared(name, hint, defaults.get(name, "sdpa")), _escaped(told[name]))


def _training_fields() -> Iterator[str]:
    hints = _OPEN_SECTIONS["training"]()
    defaults = {field.name: _default_of(field) for field in dataclasses.fields(VanillaTransformerTrainingArguments)}
    ours = documented(VanillaTransformerTrainingArguments)
    theirs = _documented_by_transformers(Seq2SeqTrainingArguments)

    def entries(names, told):
        return (_entry(_declared(name, hints[name], defaults[name]), told.get(name, "")) for name in names)

    docstring = inspect.getdoc(VanillaTransformerTrainingArguments)
    table = "".join(re.findall(r"^\|.*\n", docstring, flags=re.MULTILINE))
    changed = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines())))
    left_out = {*WITHOUT_EFFECT, *ours}
    yield "### Fields of this package"
    yield from entries(ours, {name: _escaped(text) for name, text in ours.items()})
    yield "### Other defaults than transformers'"
    yield table.rstrip()
    yield "### Fields of transformers"
    yield (
        "These are transformers' own, in short; [its documentation]"
        "(https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Seq2SeqTrainingArguments) has the "
        "whole of it. Defaults are those here."
    )
    yield from entries([name for name in hints if name not in left_out], theirs)
    yield "### Fields without effect"
    yield "A recipe that sets one of these is an error, which says what to set instead."
    yield "| field | why |\n| --- | --- |\n" + "\n".join(
        f"| `{name}` | {_escaped(why)} |" for name, why in (WITHOUT_EFFECT | UNDER_NOAM).items()
    )
    unknown = sorted(changed - hints.keys() - {"output_dir"})
    if unknown:
        raise ValueError(f"The table of changed defaults names fields that there are not: {unknown}")


# ---------------------------------------------------------------------------------------------------------- generation


def generation_of_the_paper() -> str:
    """What a trained model's `generation_config.json` says."""
    saved = paper_generation_config(VanillaTransformerConfig()).to_diff_dict()
    rows = [f"| `{name}` | `{_yaml(value)}` |" for name, value in saved.items() if name != "transformers_version"]
    return "\n".join(["| field | value |", "| --- | --- |", *rows])


def generation_fields() -> str:
    """All fields that `decoding` of a recipe, `generate` and `generation_config.json` take."""
    theirs = _documented_by_transformers(GenerationConfig)
    others = ("transformers_version", *OUR_GENERATION_FIELDS, *UNSUPPORTED)
    names = [name for name in GenerationConfig().to_dict() if name not in others]
    return "\n\n".join(_entry(name, theirs[name]) for name in names if name in theirs)


# ------------------------------------------------------------------------------------------------------------- metrics


def metrics() -> str:
    """The table of metrics, each with the signature that it has for German."""
    return "\n\n".join(
        f"## {row.name}\n\n{_sentence(row.description)}{_of_metric(row)}\n\n```text\n{_signature(row)}\n```"
        for row in METRICS.values()
    )


def _of_metric(row) -> str:
    notes = " Lower is better." if row.lower_is_better and "lower is better" not in row.description else ""
    return notes + (" It needs the target language." if row.needs_language else "")


def _signature(row) -> str:
    if row.needs_sources:  # its program is not installed here
        return f"nrefs:1|model:{COMET_MODEL}|scale:100|version:vanilla-transformer-{vanilla_transformer.__version__}"
    metric, text = build_metric(row.name, "de"), "(S (NP PRP )NP . )S" if row.of_trees else "Das ist ein Test ."
    metric.corpus_score([text], [[text]])  # sacreBLEU counts the references only then
    return metric.get_signature().format()


def _sentence(text: str) -> str:
    text = _escaped(text)
    return f"{text[0].upper()}{text[1:]}." if re.match("[a-z]+ ", text) else f"{text}."


# --------------------------------------------------------------------------------------------------------------- forms


def forms() -> str:
    """The table of forms, each with an example."""
    example = "Zwei Männer stehen am Bahnhof."
    rows = ["| form | changes | what it does | an example |", "| --- | --- | --- | --- |"]
    for form in FORMS.values():
        sides = "both sides" if form.both_sides else "the source"
        [changed] = texts_in_form(form.name, [example])
        rows.append(f"| `{form.name}` | {sides} | {form.description} | {_escaped(changed)} |")
    return "\n".join(rows)


# -------------------------------------------------------------------------------------------------------------- python


def python() -> str:
    """Directives of autodoc for every public name, by the part of the package that it belongs to."""
    by_part = {part: [] for part in _HEADINGS}
    for name, home in PUBLIC.items():
        by_part[home.partition(".")[0]].append(name)
    parts = []
    for part, names in by_part.items():
        entries = [_directive("vanilla_transformer", name) for name in sorted(names)]
        parts += [f"## {_HEADINGS[part]}", _rst("\n".join(entries))]
    parts.append("## Submodules")
    parts.append("These are imported from the module that stands before the name.")
    entries = [_directive(module, name) for module, names in ALSO_DOCUMENTED.items() for name in names]
    parts.append(_rst("\n".join(entries)))
    parts.append("## Version")
    parts.append(
        _rst(".. py:data:: vanilla_transformer.__version__\n   :type: str\n\n   The version of the package.\n")
    )
    return "\n\n".join(parts)


def _directive(module: str, name: str) -> str:
    kind = "class" if inspect.isclass(getattr(_imported(module), name)) else "function"
    return f".. auto{kind}:: {module}.{name}\n"


def _imported(module: str) -> types.ModuleType:
    return __import__(module, fromlist=["_"])


def _rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text}```"


def lacking_docstrings() -> list[str]:
    """Public names, and public methods of public classes, that say nothing of themselves.

    A method that a library prescribes is that library's to explain.
    """
    lacking = []
    modules = {"vanilla_transformer": tuple(PUBLIC), **ALSO_DOCUMENTED}
    for module, name in ((module, name) for module, names in modules.items() for name in names):
        found = getattr(_imported(module), name)
        if not _says_something(found):
            lacking.append(f"{module}.{name}")
        for member, value in vars(found).items() if inspect.isclass(found) else ():
            value = getattr(value, "__func__", value)
            if member.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
                continue
            prescribed = any(hasattr(base, member) for base in found.__mro__[1:])
            # A dataclass of transformers has its fields as attributes, which properties of ours may replace.
            is_field = member in getattr(found, "__dataclass_fields__", {})
            if not (prescribed or is_field or _says_something(value)):
                lacking.append(f"{module}.{name}.{member}")
    return lacking


def _says_something(thing) -> bool:
    text = (getattr(thing, "__doc__", None) or "").strip()
    return bool(text) and not text.startswith(f"{getattr(thing, '__name__', '')}(")  # a dataclass writes its signature


# ------------------------------------------------------------------------------------------------ reading and writing


def documented(kind: type) -> dict[str, str]:
    """What a docstring of this package says of each argument or attribute."""
    section = re.search(r"^(?:Args|Attributes):\n((?: {4}.*\n|\n)+)", f"{inspect.getdoc(kind)}\n", flags=re.MULTILINE)
    found = re.findall(r"^ {4}(\w+): (.+(?:\n {6,}.+)*)", section[1], flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _documented_by_transformers(kind: type) -> dict[str, str]:
    """The first paragraph of what a docstring of transformers says of each argument, as Markdown."""
    told = {}
    for name, text in re.findall(
        r"^ {4}(\w+):? ?\(.*\):? *\n((?: {8}.*\n|\n)+)", f"{inspect.getdoc(kind)}\n", flags=re.MULTILINE
    ):
        paragraph = re.split(r"\n *\n|\n *[-*] ", textwrap.dedent(text).strip())[0]
        paragraph = " ".join(paragraph.split())
        if paragraph.endswith(":"):  # a list would follow
            paragraph = paragraph.rpartition(". ")[0] + "."
        paragraph = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", paragraph)  # links within their own documentation
        paragraph = re.sub(r"</?Tip>|(?<=`)~(?:\w+\.)*(?=\w)", "", paragraph)
        told[name] = re.sub(r"\[(`[^`]+`)\]", r"\1", paragraph)
    return told


def _entry(term: str, text: str) -> str:
    """A term with its explanation, as Markdown's definition lists have it."""
    return f"`{term}`\n: {text or 'See transformers.'}"


def _declared(name: str, hint: typing.Any, default: typing.Any) -> str:
    declared = f"{name}: {_type(hint)}"
    return declared if default is dataclasses.MISSING else f"{declared} = {_yaml(default)}"


def _type(hint: typing.Any) -> str:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " | ".join(dict.fromkeys(map(_type, typing.get_args(hint))))
    if hint is type(None):
        return "null"
    if typing.get_origin(hint):
        return str(hint).replace("typing.", "")
    if isinstance(hint, type) and issubclass(hint, str):
        return "str"  # choices of transformers are texts
    return "any" if hint is typing.Any else getattr(hint, "__name__", str(hint))


def _default_of(field: dataclasses.Field) -> typing.Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _yaml(value: typing.Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        return str(getattr(value, "value", value)) or "''"
    return str(value)


def _escaped(text: str) -> str:
    """Text of a docstring as Markdown that shows it: only what stands between backticks is code."""
    parts = re.split(r"(`[^`]+`)", re.sub(r"\[(`[^`]+`)\]", r"\1", text))
    parts[::2] = [re.sub(r"([*<>\[\]|$]|(?<!\w)_|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def restructured(docstring: str) -> str:
    """A docstring of this package, Markdown in Google's sections, as the reStructuredText that autodoc reads."""
    text = re.sub(r"^(?:\|.*\|\n)+", _list_table, docstring, flags=re.MULTILINE)
    code = r"(``[^`]+``|(?<!:)\[?`[^`]+`\]?|^ *>>> .*$|^ *\*+\w+(?=:)|^\.\. list-table.*$)"
    parts, written = re.split(code, text, flags=re.MULTILINE), ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            part = re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", part)
            written += ("\\ " if written.endswith("`") and re.match(r"\w", part) else "") + part
            continue
        if "`" not in part:
            written += part
            continue
        inner = part.strip("[]`").removeprefix("~")
        known = inner in PUBLIC and (part.startswith("[") or inner[0].isupper())
        span = f":py:obj:`~vanilla_transformer.{inner}`" if known else f"``{inner}``"
        written += ("\\ " if re.search(r"[\w~]$", written) else "") + span
    return written


def _list_table(found: re.Match) -> str:
    rows = [line.strip("|").split("|") for line in found[0].splitlines()]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [rows[0], *rows[2:]]:
        lines += [f"   {'-' if column == 0 else ' '} - {cell.strip()}" for column, cell in enumerate(row)]
    return "\n".join(["", *lines, "", ""])


PARTS = {
    "commands": commands,
    "recipe": recipe,
    "generation_of_the_paper": generation_of_the_paper,
    "generation_fields": generation_fields,
    "metrics": metrics,
    "forms": forms,
    "python": python,
}
