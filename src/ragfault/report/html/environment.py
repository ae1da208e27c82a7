"""Jinja2 environment of HTML pages: filters, assets, and self-contained pages with a content security policy."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup, escape

from ragfault.report import format, safe_text, wording
from ragfault.report.charts import svg
from ragfault.text import number_format

if TYPE_CHECKING:
    from jinja2 import Environment


def mark_code(text: str, limit: int = 200) -> Markup:
    """Clean a text for one line of a page, and show what stands between backticks as code.

    >>> mark_code("in `label` 1 < 0")
    Markup('in <code>label</code> 1 &lt; 0')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(safe_text.clean_label(text, limit)))))


FILTERS = {
    "label": safe_text.clean_label,
    "prose": mark_code,
    "alert_text": wording.describe_alert,
    "time": format.format_time,
    "problem_title": format.get_problem_title,
    "quantiles": format.describe_quantiles,
    "layer_title": lambda layer: format.LAYER_QUESTIONS[layer][0],
    "number": number_format.format_number,
    "interval": number_format.format_interval,
    "bounds": number_format.format_bounds,
    "share": number_format.format_share,
    "count": "{:,}".format,
    "counted": number_format.format_count,
    "quoted": lambda text: quote(text, safe=""),
}
GLOBALS: dict[str, Any] = {
    "LAYER_QUESTIONS": format.LAYER_QUESTIONS,
    "RESULT_SIGNS": format.RESULT_SIGNS,
    "draw_histogram": svg.draw_histogram,
    "draw_interval": svg.draw_interval,
}


PACKAGE = "ragfault.report.html"
"""The package of the templates and static files that every page may use."""


@lru_cache
def create_environment(package: str = PACKAGE) -> Environment:
    """Create the environment in which every value is escaped and an unknown name is an error.

    Templates are looked for in the package, then among those that every page may use.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, PACKAGE))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "" if value is None else value,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(GLOBALS)
    return environment


def render_page(
    template: str, styles: tuple[str, ...], scripts: tuple[str, ...], package: str = PACKAGE, **context: Any
) -> str:
    """Render a template as a page that carries its own style sheet and script and fetches nothing.

    The template and the static files lie in the package, or among those that every page may use.
    """
    style, script = load_assets(*styles, package=package), load_assets(*scripts, package=package)
    return (
        create_environment(package)
        .get_template(template)
        .render(
            policy=Markup(build_security_policy(script, style)), style=Markup(style), script=Markup(script), **context
        )
    )


def load_assets(*names: str, package: str = PACKAGE) -> str:
    """Read static files and join them, with the line ends that their hash is computed with."""
    own, shared = (files(name).joinpath("static") for name in (package, PACKAGE))
    places = [own.joinpath(name) if own.joinpath(name).is_file() else shared.joinpath(name) for name in names]
    return "\n".join(place.read_text("utf-8").replace("\r\n", "\n") for place in places)


def build_security_policy(script: str, style: str) -> str:
    """Build the content security policy: this script and this style sheet, and nothing else from anywhere.

    >>> build_security_policy("", "").split("; ")[0]
    "default-src 'none'"
    """
    return (
        f"default-src 'none'; script-src '{_hash_source(script)}'; style-src '{_hash_source(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash_source(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
