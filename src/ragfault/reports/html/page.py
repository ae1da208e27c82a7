"""Self-contained pages: templates, assets and the content security policy."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def load_assets(*names: str) -> str:
    """Files of the page, one after the other, with the line ends that they are hashed with."""
    html = files("ragfault.reports.html")
    paths = [html.joinpath("templates" if name.endswith(".html") else "static", name) for name in names]
    return "\n".join(path.read_text("utf-8").replace("\r\n", "\n") for path in paths)


def build_security_policy(script: str, style: str) -> str:
    """The content security policy: this script and this style sheet, and nothing else from anywhere.

    >>> build_security_policy("", "").split("; ")[0]
    "default-src 'none'"
    """
    return (
        f"default-src 'none'; script-src '{_hash_source(script)}'; style-src '{_hash_source(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def fill_template(template: str, **parts: str) -> str:
    """The template with its holes filled; what is put in is not looked at again.

    >>> fill_template("<p>{{one}}</p>", one="{{two}}")
    '<p>{{two}}</p>'
    """
    return _PLACEHOLDER.sub(lambda hole: parts[hole[1]], template)


def _hash_source(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
