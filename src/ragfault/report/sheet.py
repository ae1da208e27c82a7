"""A page as one file: what it carries, and the policy that allows only that."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

__all__ = ["carried", "fill", "policy"]

_HOLE = re.compile(r"\{\{(\w+)\}\}")


def carried(*names: str) -> str:
    """Files of the page, one after the other, with the line ends that they are hashed with."""
    folder = files("ragfault").joinpath("report", "page")
    return "\n".join(folder.joinpath(name).read_text("utf-8").replace("\r\n", "\n") for name in names)


def policy(script: str, style: str) -> str:
    """The content security policy: this script and this style sheet, and nothing else from anywhere.

    >>> policy("", "").split("; ")[0]
    "default-src 'none'"
    """
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def fill(template: str, **parts: str) -> str:
    """The template with its holes filled; what is put in is not looked at again.

    >>> fill("<p>{{one}}</p>", one="{{two}}")
    '<p>{{two}}</p>'
    """
    return _HOLE.sub(lambda hole: parts[hole[1]], template)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
