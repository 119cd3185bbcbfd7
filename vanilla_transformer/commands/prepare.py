"""From a recipe to its training corpus as token ids."""

from pathlib import Path

from .process import bars_of_steps


def prepare(
    recipe: str,
    *,
    output: Path,
    tokenizer: Path | None = None,
    workers: int | None = None,
    overrides: dict | None = None,
) -> None:
    """Tokenises a recipe's training corpus once, into a folder of Arrow files that training starts from in seconds.

    Run it again to continue after an interruption. Any field of the recipe can be set on the command line, as for
    `train`: --data.folder corpora --tokenizer.vocab_size 32000

    Args:
        recipe: Name of a recipe (see `vanilla-transformer recipes`) or a YAML file.
        output: The folder, which `datasets.load_from_disk` reads too.
        tokenizer: Folder of a vocabulary to use; if it is not given, one is learned as the recipe says.
        workers: Processes that tokenise; by default one per core.
    """
    from ..data.corpora import open_stream
    from ..data.mixture import open_mixture
    from ..data.prepared import corpus_begun_with
    from ..data.preparing import prepare as prepare_corpus
    from ..data.tokenizer import load_tokenizer
    from ..run.recipe import load_recipe

    settings = load_recipe(recipe, overrides)
    data = settings.data
    if len(data.target_languages) > 1:
        raise ValueError("data.train has several target languages: train on them from the text itself.")
    if settings.initial_model is not None and tokenizer is None:
        raise ValueError("The run will have the vocabulary of its initial_model: give that model's to --tokenizer.")
    vocabulary = settings.tokenizer if tokenizer is None else load_tokenizer(tokenizer)
    languages = data.source_language, data.target_language
    where = {"folder": data.folder, "patience": data.patience, "begun": corpus_begun_with(output)}
    where["context_sentences"] = data.context_sentences
    if data.mixture:
        stream = open_mixture(data.mixture, *languages, **where, stream=True, temperature=data.sampling_temperature)
    else:
        stream = open_stream(data.train, *languages, **where)
    stream.tags = (*stream.tags, *settings.added_tokens)
    with bars_of_steps(stream.pairs) as show:
        report = prepare_corpus(stream, vocabulary, output, limits=data.limits, workers=workers, on_progress=show)
    print(f"{report}\nEverything is in {output}.")
