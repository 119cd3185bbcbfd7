"""Models for others."""

import logging
from pathlib import Path

from .process import UsageError


logger = logging.getLogger(__name__)


def publish(
    model: Path,
    repository: str,
    *,
    title: str | None = None,
    license: str | None = None,
    dataset: list[str] | None = None,
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    pull_request: bool = False,
    message: str | None = None,
    dry_run: bool = False,
) -> None:
    """Publishes a model on the Hub: weights, tokenizer, code and, for a run, its card, recipe, scores and pictures.

    First log in with `hf auth login`, or set HF_TOKEN. Publishing again after a failure finishes the job.

    Args:
        model: A run folder, or a model's folder.
        repository: Its name on the Hub: user/name.
        title: The card's heading; by default the repository's name.
        license: Name of the licence as the Hub knows it, say apache-2.0.
        dataset: Name of a dataset on the Hub that it was trained on, in addition to those that the recipe names.
        private: Make the repository private, if it is new.
        revision: The branch, created if it is missing; or refs/pr/1, say, to add to a pull request.
        tag: A name for the commit, say v1.
        pull_request: Open a pull request instead of changing the branch.
        message: Message of the commit.
        dry_run: Send nothing: show the files and their sizes.
    """
    options = dict(locals())
    from ..sharing import publishing

    if repository.count("/") != 1 or not all(repository.split("/")):
        raise UsageError(f"{repository!r} is not a valid name on the Hub: give USER/NAME.")
    if pull_request and (tag is not None or revision is not None):
        raise UsageError(
            "Give --tag and --revision or --pull-request, not both: a pull request is for the main branch, and not "
            "part of the model yet."
        )
    done = publishing.publish(options.pop("model"), datasets=options.pop("dataset") or (), **options)
    for path, size in done.files.items():
        print(f"{size:>12,}  {path}")
    print(f"{sum(done.files.values()):>12,}  bytes in {len(done.files)} files")
    if done.commit is not None:
        print(done.commit.pr_url or done.commit.commit_url)
