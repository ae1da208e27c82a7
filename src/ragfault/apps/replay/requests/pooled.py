"""The requests of one system, read together: what one of them shows of how chunks are written holds for all."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.apps.replay.requests.chunk_places import RequestRefused
from ragfault.apps.replay.requests.request_template import (
    RequestTemplate,
    adopt_place,
    find_donor,
    pool_templates,
    read_template,
    render_request,
)
from ragfault.model.records import Chunk, ConversationTurn, Trace


def read_templates(traces: Sequence[Trace]) -> list[RequestTemplate | str]:
    """Read the request of each trace as a template, or the reason why there is none.

    A request without chunks takes their place from another one that has some.
    """
    templates: list[RequestTemplate | str] = []
    for trace in traces:
        try:
            templates.append(read_template(trace.messages or (), trace.chunks or ()))
        except RequestRefused as error:
            templates.append(str(error))
    places = [place for place, item in enumerate(templates) if isinstance(item, RequestTemplate)]
    pooled = pool_templates([item for item in templates if isinstance(item, RequestTemplate)])
    for place, template in zip(places, pooled, strict=True):
        templates[place] = template
    donor = find_donor(pooled)
    for place, trace in enumerate(traces):
        if donor is not None and trace.messages and not trace.chunks:
            try:
                templates[place] = adopt_place(donor, trace.messages)
            except RequestRefused as error:
                templates[place] = str(error)
    return templates


def share_writers(template: RequestTemplate | str, other: RequestTemplate | str) -> RequestTemplate | str:
    """Return a template with the ways of writing passages that the request of another version allows as well.

    Where its own system leaves several ways open, the other one may show which it is.
    """
    if isinstance(template, str) or isinstance(other, str):
        return template
    common = tuple(writer for writer in template.writers if writer in other.writers)
    return template._replace(writers=common) if common else template


def show_chunks(template: RequestTemplate | str, chunks: Sequence[Chunk]) -> tuple[ConversationTurn, ...]:
    """Write a request with these chunks; one whose text it had is written as it had it, whatever its id.

    Raises RequestRefused as `render_request` does, and with the reason if there is no template.
    """
    if isinstance(template, str):
        raise RequestRefused(template)
    own = {chunk.text: chunk for chunk in template.chunks}
    return render_request(template, [own.get(chunk.text, chunk) for chunk in chunks])
