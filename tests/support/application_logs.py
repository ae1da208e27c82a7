"""Logs and exports of chat applications, search engines and evaluation tools, all of three questions of a pool."""

import json

QUESTIONS = (
    {
        "query": "Which day is the pool closed for cleaning?",
        "chunks": [
            "The pool is closed every Tuesday morning for cleaning.",
            "Swim lessons start at nine and need a booking.",
        ],
        "answer": "It is closed on Tuesday mornings.",
        "reference": "Tuesday morning.",
    },
    {
        "query": "How much is a locker for one day?",
        "chunks": [
            "A locker costs two euros a day.",
            "Towels can be rented at the entrance.",
            "The sauna opens at noon.",
        ],
        "answer": "A locker costs two euros for one day.",
        "reference": "Two euros.",
    },
    {
        "query": "May children use the diving board?",
        "chunks": ["Children under ten may not use the diving board."],
        "answer": "Only children of ten and older may use it.",
        "reference": "From the age of ten.",
    },
)
ALL = ("query", "chunks", "answer", "reference")
NO_KEY = ("query", "chunks", "answer")


def say(question):
    """Return the messages of a chat of one question."""
    return [{"role": "user", "content": question["query"]}, {"role": "assistant", "content": question["answer"]}]


def open_webui(number, question):
    """Return a chat whose messages stand in a list and by their ids, the sources as parallel lists."""
    user, reply = ({"id": f"m{number}{place}", **turn} for place, turn in enumerate(say(question)))
    source = {
        "source": {"id": "f1", "name": "rules.pdf"},
        "document": question["chunks"],
        "metadata": [{"page": place} for place, _ in enumerate(question["chunks"])],
        "distances": [0.5 + place / 10 for place, _ in enumerate(question["chunks"])],
    }
    chat = {
        "title": "Questions about the pool",
        "history": {"messages": {user["id"]: user, reply["id"]: {**reply, "done": True}}, "currentId": reply["id"]},
        "messages": [user, {**reply, "sources": [source]}],
    }
    return {"id": f"c{number}", "user_id": "u", "chat": chat, "archived": False}


def build_n8n_log(number, question):
    """Return an execution of a workflow, with the data of its nodes deep below their names."""
    matches = [{"document": {"pageContent": text, "metadata": {}}, "score": 0.8} for text in question["chunks"]]
    nodes = {
        "When chat message received": [{"data": {"main": [[{"json": {"chatInput": question["query"]}}]]}}],
        "Vector Store": [{"data": {"ai_vectorStore": [[{"json": {"response": matches}}]]}}],
        "AI Agent": [{"data": {"main": [[{"json": {"output": question["answer"]}}]]}}],
    }
    return {"executionId": number, "workflow": "Pool bot", "data": {"resultData": {"runData": nodes}}}


def build_agent_events(number, question):
    """Return a session whose events are messages of the user, calls of a function, what it returned, and the answer."""
    call = {"functionCall": {"id": "f", "name": "search", "args": {"query": "pool"}}}
    result = {"functionResponse": {"id": "f", "name": "search", "response": {"result": question["chunks"]}}}
    spoken = [("user", "user", {"text": question["query"]}), ("pool_agent", "model", call)]
    spoken += [("pool_agent", "user", result), ("pool_agent", "model", {"text": question["answer"]})]
    events = [
        {"id": f"e{place}", "author": author, "content": {"role": role, "parts": [part]}}
        for place, (author, role, part) in enumerate(spoken)
    ]
    return {"id": f"s{number}", "app_name": "pool", "state": {}, "events": events}


def build_azure_log(number, question):
    """Return a call of a chat model with its request, and the citations in the context of its message."""
    citations = [{"content": text, "title": "Rules", "chunk_id": str(n)} for n, text in enumerate(question["chunks"])]
    context = {"citations": citations, "intent": '["pool closed"]'}
    message = {"role": "assistant", "content": question["answer"], "context": context}
    return {
        "request": {"messages": say(question)[:1]},
        "response": {"id": f"r{number}", "model": "m", "choices": [{"index": 0, "message": message}]},
    }


def retrieve_and_generate(number, question):
    """Return a reply of Bedrock, whose citations hold what was retrieved."""
    references = [{"content": {"text": text}, "location": {"type": "S3"}} for text in question["chunks"]]
    part = {"textResponsePart": {"span": {"start": 0, "end": 9}, "text": question["answer"]}}
    return {
        "input": {"text": question["query"]},
        "sessionId": f"s{number}",
        "output": {"text": question["answer"]},
        "citations": [{"generatedResponsePart": part, "retrievedReferences": references}],
    }


def build_semantic_kernel_log(number, question):
    """Return a chat as .NET serializes it."""
    return {
        "ChatHistory": [
            {"Role": {"Label": turn["role"]}, "Items": [{"$type": "TextContent", "Text": turn["content"]}]}
            for turn in say(question)
        ],
        "MemoryRecords": [
            {"Metadata": {"Id": f"k{number}{place}", "Text": text}, "Relevance": 0.8}
            for place, text in enumerate(question["chunks"])
        ],
    }


def build_opik_log(number, question):
    """Return a trace with its spans and with scores that have reasons."""
    return {
        "id": f"t{number}",
        "name": "rag",
        "input": {"user_question": question["query"]},
        "output": {"output": question["answer"]},
        "feedback_scores": [{"name": "faithful", "value": 0.3, "reason": "The answer is faithful to the text."}],
        "spans": [
            {"name": "find", "input": {"query": question["query"]}, "output": {"documents": question["chunks"]}},
            {"name": "write", "output": {"choices": [{"message": say(question)[1]}]}},
        ],
    }


def inspect_sample(number, question):
    """Return a sample of an evaluation, its contexts in the metadata."""
    return {
        "id": number,
        "input": question["query"],
        "target": question["reference"],
        "messages": say(question),
        "output": {"model": "m", "choices": [{"message": say(question)[1]}]},
        "metadata": {"contexts": question["chunks"]},
        "scores": {"qa": {"value": "C", "explanation": "The answer is right in all points."}},
    }


def build_squad_question(number, question):
    """Return a question of a data set, of which the second has no answer."""
    impossible = number == 1
    answers = {"answers": [] if impossible else [{"text": question["reference"], "answer_start": 3}]}
    plausible = {"plausible_answers": [{"text": "two", "answer_start": 1}]} if impossible else {}
    return {"id": f"s{number}", "question": question["query"], "is_impossible": impossible, **answers, **plausible}


LOGS = {
    "Open WebUI": (open_webui, NO_KEY),
    "Dify": (
        lambda number, q: {
            "event": "message",
            "conversation_id": f"c{number}",
            "query": q["query"],
            "answer": q["answer"],
            "metadata": {
                "usage": {"prompt_tokens": 10},
                "retriever_resources": [
                    {"position": place, "segment_id": f"s{place}", "score": 0.9, "content": text}
                    for place, text in enumerate(q["chunks"])
                ],
            },
        },
        NO_KEY,
    ),
    "n8n": (build_n8n_log, NO_KEY),
    "Flowise": (
        lambda number, q: {
            "text": q["answer"],
            "question": q["query"],
            "chatId": f"c{number}",
            "sourceDocuments": [{"pageContent": text, "metadata": {"source": "blob"}} for text in q["chunks"]],
        },
        NO_KEY,
    ),
    "events of an agent": (build_agent_events, NO_KEY),
    "Azure OpenAI on your data": (build_azure_log, NO_KEY),
    "Bedrock RetrieveAndGenerate": (retrieve_and_generate, NO_KEY),
    "Semantic Kernel": (build_semantic_kernel_log, NO_KEY),
    "Opik": (build_opik_log, NO_KEY),
    "Inspect": (inspect_sample, ALL),
    "Vespa": (
        lambda number, q: {
            "query": q["query"],
            "response": {
                "root": {
                    "id": "toplevel",
                    "children": [
                        {"id": f"d{place}", "fields": {"chunk": text}} for place, text in enumerate(q["chunks"])
                    ],
                }
            },
            "answer": q["answer"],
        },
        NO_KEY,
    ),
    "Kibana": (
        lambda number, q: {
            "_index": "logs",
            "_id": f"k{number}",
            "_source": {
                "@timestamp": "2026-01-01T00:00:00Z",
                "rag": {
                    "query": q["query"],
                    "hits": [{"doc_id": f"d{place}", "content": text} for place, text in enumerate(q["chunks"])],
                    "completion": q["answer"],
                },
            },
        },
        NO_KEY,
    ),
    "Portkey": (
        lambda number, q: {
            "id": f"p{number}",
            "request": {"url": "https://api", "body": {"messages": say(q)[:1], "model": "m"}},
            "response": {"status": 200, "body": {"choices": [{"message": say(q)[1]}]}},
            "metadata": {"retrieved_docs": q["chunks"], "_user": "u"},
        },
        NO_KEY,
    ),
    "a Slack bot": (
        lambda number, q: {
            "ts": f"17180000{number}.0001",
            "channel": "C01",
            "event": {"type": "app_mention", "text": q["query"]},
            "bot_reply": q["answer"],
            "retrieved": [{"path": "rules.md", "chunk": text, "sim": 0.8} for text in q["chunks"]],
        },
        NO_KEY,
    ),
    "Qdrant": (
        lambda number, q: {
            "question": q["query"],
            "points": [
                {"id": place, "score": 0.8, "payload": {"page_content": text}} for place, text in enumerate(q["chunks"])
            ],
            "llm_output": q["answer"],
        },
        NO_KEY,
    ),
    "DSPy": (
        lambda number, q: {
            "inputs": {"question": q["query"]},
            "prediction": {"context": q["chunks"], "reasoning": "The context names it.", "answer": q["answer"]},
            "example": {"question": q["query"], "answer": q["reference"]},
        },
        ALL,
    ),
    "AutoRAG": (
        lambda number, q: {
            "qid": f"q{number}",
            "query": q["query"],
            "retrieval_gt": [[f"d{number}0"]],
            "generation_gt": [q["reference"]],
            "retrieved_contents": q["chunks"],
            "retrieved_ids": [f"d{number}{place}" for place, _ in enumerate(q["chunks"])],
            "generated_texts": q["answer"],
        },
        ALL,
    ),
    "a list of right answers beside the output": (
        lambda number, q: {
            "question": q["query"],
            "answer": [q["reference"]],
            "ctxs": q["chunks"],
            "output": q["answer"],
        },
        ALL,
    ),
    "an answer key beside a prediction": (
        lambda number, q: {
            "question": q["query"],
            "answer": q["reference"],
            "contexts": q["chunks"],
            "predicted_answer": q["answer"],
        },
        ALL,
    ),
    "KILT": (
        lambda number, q: {
            "id": f"k{number}",
            "input": q["query"],
            "output": [{"answer": q["reference"], "provenance": [{"title": "Pool"}]}, {"provenance": [{"title": "A"}]}],
        },
        ("query", "reference"),
    ),
    "two speakers": (
        lambda number, q: {"user_utterance": q["query"], "kb_articles": q["chunks"], "bot_utterance": q["answer"]},
        NO_KEY,
    ),
    "a table of Arize": (
        lambda number, q: {
            "prediction_id": f"p{number}",
            "attributes.input.value": q["query"],
            "attributes.output.value": q["answer"],
            "attributes.retrieval.documents": json.dumps([{"document.content": text} for text in q["chunks"]]),
            "eval.Hallucination.explanation": "The answer is supported by the text.",
        },
        NO_KEY,
    ),
    "Langfuse without observations": (
        lambda number, q: {
            "id": f"t{number}",
            "timestamp": "2026-01-01T00:00:00Z",
            "sessionId": "s",
            "input": {"question": q["query"]},
            "output": {"answer": q["answer"], "documents": [{"page_content": text} for text in q["chunks"]]},
        },
        NO_KEY,
    ),
    "a workflow span": (
        lambda number, q: {
            "trace_id": f"{number + 1:032x}",
            "span_id": f"{number + 1:016x}",
            "span_name": "rag.workflow",
            "span_attributes": {
                "traceloop.span.kind": "workflow",
                "traceloop.entity.input": json.dumps({"kwargs": {"question": q["query"]}}),
                "traceloop.entity.output": json.dumps({"answer": q["answer"], "docs": q["chunks"]}),
            },
        },
        NO_KEY,
    ),
    "German": (
        lambda number, q: {
            "Nr": number,
            "Frage": q["query"],
            "Gefundene Textstellen": q["chunks"],
            "Antwort": q["answer"],
            "Soll": q["reference"],
            "Bemerkung": "passt so",
        },
        ALL,
    ),
    "French": (
        lambda number, q: {
            "question_utilisateur": q["query"],
            "extraits": q["chunks"],
            "réponse": q["answer"],
            "réponse_attendue": q["reference"],
        },
        ALL,
    ),
    "Spanish": (
        lambda number, q: {
            "pregunta": q["query"],
            "contextos": q["chunks"],
            "respuesta": q["answer"],
            "respuesta_correcta": q["reference"],
        },
        ALL,
    ),
    "Chinese": (
        lambda number, q: {
            "问题": q["query"],
            "检索结果": q["chunks"],
            "模型回答": q["answer"],
            "标准答案": q["reference"],
        },
        ALL,
    ),
    "R2R": (
        lambda number, q: {
            "query": q["query"],
            "results": {
                "generated_answer": q["answer"],
                "search_results": {
                    "chunk_search_results": [
                        {"id": f"c{number}{place}", "score": 0.5, "text": text, "metadata": {"title": "rules.pdf"}}
                        for place, text in enumerate(q["chunks"])
                    ]
                },
            },
        },
        NO_KEY,
    ),
    "a graph beside text units": (
        lambda number, q: {
            "query": q["query"],
            "mode": "hybrid",
            "response": q["answer"],
            "context_data": {
                "entities": [{"entity": "POOL", "description": "A pool with lockers and a sauna."}],
                "relationships": [{"src": "POOL", "tgt": "LOCKER", "description": "The pool rents lockers."}],
                "text_units": [{"id": place, "content": text} for place, text in enumerate(q["chunks"])],
            },
        },
        NO_KEY,
    ),
    "snippets beside citations of pages": (
        lambda number, q: {
            "request": {"messages": say(q)[:1]},
            "message": say(q)[1],
            "citations": [{"position": 12, "references": [{"file": {"name": "rules.pdf"}, "pages": [number]}]}],
            "context": {"snippets": [{"type": "text", "content": text, "score": 0.7} for text in q["chunks"]]},
        },
        NO_KEY,
    ),
    "a response of passages and a summary": (
        lambda number, q: {
            "query": [{"query": q["query"], "numResults": 5}],
            "responseSet": [
                {
                    "response": [{"text": text, "score": 0.8, "documentIndex": 0} for text in q["chunks"]],
                    "document": [{"id": "rules.pdf", "metadata": [{"name": "lang", "value": "en"}]}],
                    "summary": [{"text": q["answer"], "lang": "en"}],
                }
            ],
        },
        NO_KEY,
    ),
    "search results and a summary": (
        lambda number, q: {
            "query": q["query"],
            "summary": q["answer"],
            "search_results": [{"text": text, "score": 0.8} for text in q["chunks"]],
        },
        NO_KEY,
    ),
    "a thread of steps": (
        lambda number, q: {
            "id": f"th{number}",
            "steps": [
                {"id": "1", "name": "anna", "type": "user_message", "output": q["query"]},
                {"id": "2", "name": "find", "type": "retrieval", "output": json.dumps(q["chunks"])},
                {"id": "3", "name": "bot", "type": "assistant_message", "output": q["answer"]},
            ],
        },
        NO_KEY,
    ),
    "the state of a graph of agents": (
        lambda number, q: {
            "thread_id": f"t{number}",
            "values": {
                "messages": [
                    {"type": "human", "content": q["query"]},
                    {"type": "ai", "content": "", "tool_calls": [{"name": "search", "args": {"query": "pool"}}]},
                    {
                        "type": "tool",
                        "content": " ".join(q["chunks"]),
                        "artifact": [{"page_content": text, "metadata": {}} for text in q["chunks"]],
                    },
                    {"type": "ai", "content": q["answer"]},
                ]
            },
        },
        NO_KEY,
    ),
    "parts of messages with outputs of tools": (
        lambda number, q: {
            "id": f"chat{number}",
            "messages": [
                {"role": "user", "parts": [{"type": "text", "text": q["query"]}]},
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "tool-search", "output": {"matches": [{"id": t, "text": t} for t in q["chunks"]]}},
                        {"type": "text", "text": q["answer"]},
                    ],
                },
            ],
        },
        NO_KEY,
    ),
    "an item beside the sample of a model": (
        lambda number, q: {
            "datasource_item": {"question": q["query"], "docs": q["chunks"], "correct_answer": q["reference"]},
            "results": [{"name": "match", "passed": True, "score": 1.0}],
            "sample": {"input": say(q)[:1], "output": say(q)[1:], "model": "m"},
        },
        ALL,
    ),
    "ids of passages beside sentences of an answer": (
        lambda number, q: {
            "topic_id": f"2026-{number}",
            "topic": q["query"],
            "references": [f"web_doc_{number}#{place}" for place, _ in enumerate(q["chunks"])],
            "answer": [{"text": q["answer"], "citations": [0]}],
        },
        ("query", "answer"),
    ),
    "support tickets": (
        lambda number, q: {
            "ticket_id": number,
            "requester_comment": q["query"],
            "suggested_articles": [{"article_id": n, "title": "Rules", "body": t} for n, t in enumerate(q["chunks"])],
            "auto_reply": {"body": q["answer"], "sent": True},
        },
        NO_KEY,
    ),
    "a rendered prompt": (
        lambda number, q: {
            "rendered_prompt": "Answer from the context.\n\nContext:\n"
            + "\n---\n".join(q["chunks"])
            + f"\n\nQuestion: {q['query']}\nAnswer:",
            "completion_text": q["answer"],
        },
        NO_KEY,
    ),
    "Italian": (
        lambda number, q: {
            "domanda": q["query"],
            **{f"passaggio_{place}": text for place, text in enumerate(q["chunks"], 1)},
            "risposta": q["answer"],
            "risposta attesa": q["reference"],
        },
        ALL,
    ),
}
"""Name → the record of a question by its number, and the fields that it holds."""
