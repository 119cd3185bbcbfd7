"""A model, with all that belongs to it, as a repository of the Hub."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitInfo, HfApi
from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalTokenNotFoundError

from ..files import write_text
from ..model.code_vanilla_transformer import save_code
from ..run_folder import WEIGHTS, RunFolder, find_model
from .model_card import bare_card, model_card


logger = logging.getLogger(__name__)

MODEL_FILES = ("config.json", "generation_config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json")
"""What a repository has at least, beside the code."""

_MORE_MODEL_FILES = ("recipe.yaml", "special_tokens_map.json", "source.spm", "target.spm", "vocab.json")
_PATIENCE = 60.0  # seconds


@dataclass(frozen=True)
class Publication:
    """What was published, or would be.

    Attributes:
        repository: Its name.
        files: Sizes in bytes by path in the repository.
        commit: The commit that was made; None of a dry run, or if the repository had all of it already.
    """

    repository: str
    files: dict[str, int]
    commit: CommitInfo | None


def publish(
    path: str | Path,
    repository: str,
    *,
    title: str | None = None,
    license: str | None = None,
    datasets: Sequence[str] = (),
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    pull_request: bool = False,
    message: str | None = None,
    dry_run: bool = False,
) -> Publication:
    """Publishes a model: weights, configurations, tokenizer, code, and of a run its card, recipe, scores and pictures.

    All of it is one commit: whoever loads the model meanwhile gets the old one or the new one. Publishing again after
    a failure finishes the job; what is there already is not sent again. The token is the one that `hf auth login` has
    saved, or `HF_TOKEN`.

    Args:
        path: A run folder, whose averaged (else best) model is taken with the run's records, or a model's folder.
        repository: Its name on the Hub, "user/name".
        title: The card's heading; the repository's name if it is not given.
        license: See `model_card`.
        datasets: See `model_card`.
        private: Make the repository a private one, if it is new.
        revision: The branch, made if it is missing; the repository's main one if it is not given.
        tag: A name to give to the commit, say "v1".
        pull_request: Open a pull request instead of changing the branch.
        message: Of the commit.
        dry_run: Send nothing.

    Raises:
        FileNotFoundError: There is no model at `path`, or the run is not finished.
        ValueError: `path` lacks something that a repository needs, or the recipe of a run names no test set.
        PermissionError: The Hub does not know the token, or it may not write there.
        ConnectionError: The Hub did not answer for a minute, or answered with errors only.
    """
    model = find_model(path)
    if missing := [name for name in MODEL_FILES if not (model / name).is_file() and not _is_marian(model, name)]:
        raise ValueError(
            f"{model} lacks {', '.join(missing)}: publish a run folder, or a model saved with its tokenizer."
        )
    with _gathered(Path(path), model, repository, title, license, datasets) as folder:
        files = {
            str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()
        }
        if dry_run:
            return Publication(repository, files, None)
        api = HfApi()
        with _explained(repository):
            _persistently(lambda: api.create_repo(repository, private=private, exist_ok=True))
            if revision is not None:
                _persistently(lambda: api.create_branch(repository, branch=revision, exist_ok=True))
            commit = _persistently(
                lambda: api.upload_folder(
                    repo_id=repository,
                    folder_path=folder,
                    revision=revision,
                    create_pr=pull_request,
                    commit_message=message or f"{title or repository}: model, code, card",
                    delete_patterns=["training_args.bin"],  # a pickle, which Trainer's own pushes leave
                )
            )
            if tag is not None:
                _persistently(lambda: api.create_tag(repository, tag=tag, revision=commit.oid, exist_ok=True))
    return Publication(repository, files, commit)


def _is_marian(model: Path, name: str) -> bool:
    """Marian's tokenizer, of a converted model, has other files."""
    return name == "tokenizer.json" and (model / "source.spm").is_file()


@contextmanager
def _gathered(
    path: Path, model: Path, repository: str, title: str | None, license: str | None, datasets: Sequence[str]
) -> Iterator[Path]:
    """A folder with the repository's files."""
    run = RunFolder(path)
    title = title or repository.rpartition("/")[2]
    with TemporaryDirectory(prefix="vanilla-transformer-") as name:
        folder = Path(name)
        for file in (*MODEL_FILES, *_MORE_MODEL_FILES):
            if (model / file).is_file():
                shutil.copy(model / file, folder)
        save_code(folder)
        if model == run.path:
            card = bare_card(model, title=title, repository=repository, license=license)
        else:
            card = model_card(path, title=title, repository=repository, license=license, datasets=datasets)
            for record in (run.scores, run.data, run.environment, run.log, run.learning_curve, run.attention):
                if record.is_file():
                    shutil.copy(record, folder)
            shutil.copytree(run.translations, folder / run.translations.name)
        write_text(folder / "README.md", card)
        yield folder


def _persistently(action: Callable[[], Any]) -> Any:
    """What `action` returns, tried again while the Hub breaks off or answers with errors of its own.

    Its client tries parts of an upload again, but neither the making of a repository nor the commit itself.
    """
    begun, delay = time.monotonic(), 1.0
    while True:
        try:
            return action()
        except Exception as error:
            if not _may_pass(error) or time.monotonic() - begun > _PATIENCE:
                raise
            what = f"status {_status(error)}" if _status(error) else type(error).__name__
            logger.warning("The Hub did not answer as it should (%s); trying again in %.0f seconds.", what, delay)
            time.sleep(delay)
            delay = min(2 * delay, 16.0)


def _may_pass(error: Exception) -> bool:
    """Whether it is the Hub's or the line's fault, which waiting may mend."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # of a file that is being sent
        return _may_pass(error.__cause__)
    status = _status(error)
    if status is not None:
        return status >= 500 or status in (408, 429)
    return isinstance(error, (HTTPError, ConnectionError, TimeoutError))


def _status(error: BaseException | None) -> int | None:
    response = getattr(error, "response", None)
    return response.status_code if isinstance(error, HfHubHTTPError) and response is not None else None


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """The client's errors as what a user can mend.

    They carry the request with them, and so the token: what is raised instead says neither.
    """
    try:
        yield
    except LocalTokenNotFoundError:
        raise PermissionError(
            f"There is no token to write to {repository} with: log in with `hf auth login`."
        ) from None
    except Exception as error:
        status = _status(error) or _status(error.__cause__)
        if status in (401, 403, 404):
            raise PermissionError(
                f"The Hub does not let you write to {repository} (status {status}): log in with `hf auth login`, with "
                "a token that may write there."
            ) from None
        if _may_pass(error):
            what = f"status {status}" if status else type(error).__name__
            raise ConnectionError(
                f"The Hub does not answer as it should ({what}): publish again later, which finishes the job."
            ) from None
        if status is not None:
            said = error.server_message if isinstance(error, HfHubHTTPError) else None
            raise ValueError(
                f"The Hub refuses this for {repository} (status {status}): {said or 'no reason'}"
            ) from None
        raise
