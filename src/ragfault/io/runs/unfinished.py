"""What an evaluation that was stopped leaves in the place of its run."""

from __future__ import annotations

from ragfault.io.remote_paths import AnyPath

DRAFT_FOLDER = "run"
"""Name of the folder, in an unfinished run, in which the run is built, or what is done can be read."""


def get_partial_path(out: AnyPath) -> AnyPath:
    """Return the folder in which a run is built."""
    return out.with_name(out.name + ".partial")


def describe_unfinished_run(path: AnyPath) -> str | None:
    """Describe a run that was never finished, and how to finish it; None if there is none of that path."""
    partial = get_partial_path(path)
    if not partial.is_dir():
        return None
    draft = partial / DRAFT_FOLDER
    there = f" Read what is done at {draft}." if (draft / "manifest.json").is_file() else ""
    return f"{path} was never finished. Run the same evaluate command again to resume it.{there}"
