"""Whole files as platforms, frameworks, spreadsheets and shells export them, all of the same questions.

The questions differ as those of a system do: passages of several lines, with quotes and commas, one passage or
three, answers of one word, a number and some sentences.
"""

import csv
import io
import json

QUESTIONS = (
    {
        "query": "Up to what time can I return a hired bicycle?",
        "chunks": [
            "Hired bicycles are returned by 19:30.\nA later return counts as a second day.",
            'The shop says: "helmets, pumps and locks are free" | with every bicycle.',
            "Repairs take two days, or three in August.",
        ],
        "answer": "You can return it until 19:30. After that, a second day is charged.",
        "reference": "By 19:30.",
    },
    {
        "query": "How many gears does the touring bicycle have?",
        "chunks": ["The touring bicycle has 24 gears.", "The city bicycle has 3 gears, and a basket."],
        "answer": "24",
        "reference": "24",
    },
    {
        "query": "Is a deposit needed for a child seat?",
        "chunks": ["Child seats are lent without a deposit; trailers need one of 50 euros."],
        "answer": "No",
        "reference": "No, only trailers need a deposit.",
    },
    {
        "query": "Explain what happens to a bicycle that was left at the station",
        "chunks": [
            "A bicycle left at the station is collected the next morning.",
            "Collection costs 15 euros, which are taken from the deposit.",
        ],
        "answer": "It is collected the next morning. This costs 15 euros, taken from the deposit.",
        "reference": "It is collected the next morning for 15 euros.",
    },
)
ALL = ("query", "chunks", "answer", "reference")
NO_KEY = ("query", "chunks", "answer")
NO_CONTEXTS = ("query", "answer", "reference")
EXPORTS = {}
"""Name of a shape → the name of its file, its builder, and the fields that it holds."""


def register_file(name, file, fields=NO_KEY):
    """Register the builder of a whole file."""

    def register(build):
        EXPORTS[name] = (file, build, fields)
        return build

    return register


def register_lines(name, fields=NO_KEY, file="t.jsonl"):
    """Register the builder of a record that is one line of a file."""

    def register(build):
        records = lambda: [build(number, question) for number, question in enumerate(QUESTIONS)]  # noqa: E731
        EXPORTS[name] = (file, lambda: "".join(json.dumps(record) + "\n" for record in records()).encode(), fields)
        return build

    return register


def dump(value):
    """Write a JSON document of several lines."""
    return json.dumps(value, indent=1).encode()


def write_table(header, rows, **style):
    """Write a table as a spreadsheet does."""
    out = io.StringIO()
    csv.writer(out, **style).writerows([header, *rows])
    return out.getvalue().encode()


@register_file("Weights & Biases table", "t.table.json", ALL)
def build_wandb_table():
    """Return a logged table, whose columns have names and whose rows have none."""
    rows = [[n, q["query"], q["chunks"], q["answer"], q["reference"], 0.5] for n, q in enumerate(QUESTIONS)]
    columns = ["idx", "question", "retrieved_docs", "model_output", "gold", "latency_s"]
    return dump({"columns": columns, "data": rows, "ncols": 6, "nrows": len(rows)})


@register_lines("Weave calls")
def build_weave_call(number, q):
    """Return a call of an operation with its inputs and output."""
    return {
        "id": f"0190-{number}",
        "project_id": "shop/bicycles",
        "op_name": "weave:///shop/bicycles/op/RagModel.predict:Xy1",
        "display_name": None,
        "trace_id": f"0190-t{number}",
        "parent_id": None,
        "started_at": "2026-03-01T10:00:00Z",
        "attributes": {"weave": {"client_version": "0.51", "source": "python-sdk"}},
        "inputs": {"self": "weave:///shop/bicycles/object/RagModel:v1", "question": q["query"]},
        "ended_at": "2026-03-01T10:00:02Z",
        "exception": None,
        "output": {"answer": q["answer"], "context": [{"text": text, "score": 0.4} for text in q["chunks"]]},
        "summary": {"weave": {"status": "success", "latency_ms": 2000}, "usage": {"m": {"requests": 1}}},
        "wb_user_id": "u",
    }


@register_lines("Opik experiment items", ALL)
def build_opik_item(number, q):
    """Return an item of an experiment with the data of its item, and scores with reasons."""
    return {
        "id": f"e{number}",
        "dataset_item_id": f"d{number}",
        "dataset_item_data": {"user_question": q["query"], "expected_output": q["reference"]},
        "evaluation_task_output": {"input": q["query"], "output": q["answer"], "context": q["chunks"]},
        "feedback_scores": [{"name": "hallucination", "value": 0.0, "reason": "The answer is faithful to the text."}],
    }


@register_lines("Helicone requests")
def build_helicone(number, q):
    """Return a request to a model and its response, the passages within the prompt."""
    passages = "\n\n".join(f"[{place}] {text}" for place, text in enumerate(q["chunks"], 1))
    system = {"role": "system", "content": "Answer from the context alone."}
    user = {"role": "user", "content": f"Context:\n{passages}\n\nQuestion: {q['query']}"}
    choice = {"index": 0, "message": {"role": "assistant", "content": q["answer"]}, "finish_reason": "stop"}
    return {
        "request_id": f"h{number}",
        "response_id": f"i{number}",
        "request_created_at": "2026-03-01T10:00:00Z",
        "request_path": "https://api/v1/chat/completions",
        "request_body": {"model": "m", "temperature": 0, "messages": [system, user]},
        "response_body": {"id": "c", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 80}},
        "request_properties": {"Helicone-Session-Name": "bicycle help"},
        "provider": "OPENAI",
        "delay_ms": 900,
        "cost_usd": 0.001,
    }


@register_lines("Braintrust experiment", ALL)
def build_braintrust(number, q):
    """Return the root span of a case, with what was expected and how it scored."""
    return {
        "id": f"b{number}",
        "span_id": f"s{number}",
        "root_span_id": f"s{number}",
        "span_parents": None,
        "span_attributes": {"name": "eval", "type": "eval"},
        "is_root": True,
        "created": "2026-03-01T10:00:00Z",
        "input": {"question": q["query"]},
        "output": {"answer": q["answer"], "documents": [{"id": f"p{n}", "text": t} for n, t in enumerate(q["chunks"])]},
        "expected": q["reference"],
        "scores": {"Factuality": 0.6},
        "metadata": {"choice": "B", "rationale": "The submitted answer is a superset of the expert answer."},
        "metrics": {"start": 1.0, "end": 2.0, "prompt_tokens": 50},
        "tags": None,
    }


@register_file("spans of Phoenix in a CSV", "t.csv")
def build_phoenix_csv():
    """Return a frame of spans as pandas writes it, the documents as Python prints them."""
    head = ["context.span_id", "context.trace_id", "parent_id", "name", "span_kind", "start_time", "end_time"]
    head += ["attributes.input.value", "attributes.output.value", "attributes.retrieval.documents"]
    rows = []
    for n, q in enumerate(QUESTIONS):
        times = [f"2026-03-01 10:0{n}:00.000000+00:00", f"2026-03-01 10:0{n}:02.000000+00:00"]
        documents = [{"document.content": text, "document.score": 0.5} for text in q["chunks"]]
        rows += [
            [f"a{n:015}", f"c{n:031}", "", "query", "CHAIN", *times, q["query"], q["answer"], ""],
            [f"b{n:015}", f"c{n:031}", f"a{n:015}", "retrieve", "RETRIEVER", *times, q["query"], "", str(documents)],
        ]
    return write_table(head, rows)


@register_lines("Datadog spans")
def build_datadog(number, q):
    """Return the spans of a trace as an observability API takes them."""

    def span(name, kind, parent, source, target):
        return {
            "name": name,
            "span_id": f"{number}{name}",
            "trace_id": f"t{number}",
            "parent_id": parent,
            "start_ns": 1_770_000_000_000_000_000 + number,
            "duration": 1_000_000,
            "meta": {"kind": kind, "input": source, "output": target},
            "metrics": {"input_tokens": 64},
        }

    documents = [{"text": text, "name": "rules", "score": 0.7, "id": str(n)} for n, text in enumerate(q["chunks"])]
    asked, reply = {"value": q["query"]}, {"value": q["answer"]}
    messages = [{"role": "user", "content": q["query"]}], [{"role": "assistant", "content": q["answer"]}]
    spans = [
        span("ask", "workflow", "undefined", asked, reply),
        span("search", "retrieval", f"{number}ask", asked, {"documents": documents}),
        span("write", "llm", f"{number}ask", {"messages": messages[0]}, {"messages": messages[1]}),
    ]
    return {"ml_app": "bicycles", "tags": ["env:prod"], "spans": spans}


@register_file("Galileo traces", "t.json")
def build_galileo():
    """Return traces whose spans are nested, the outputs of the retriever as documents."""
    traces = []
    for n, q in enumerate(QUESTIONS):
        documents = [{"content": text, "metadata": {"source": "rules.md"}} for text in q["chunks"]]
        write = {
            "type": "llm",
            "input": [{"role": "user", "content": f"Answer: {q['query']}"}],
            "output": {"role": "assistant", "content": q["answer"]},
        }
        spans = [{"type": "retriever", "input": q["query"], "output": documents}, write]
        chain = {"type": "workflow", "name": "rag", "input": q["query"], "output": q["answer"], "spans": spans}
        traces.append({"id": f"g{n}", "type": "trace", "input": q["query"], "output": q["answer"], "spans": [chain]})
    return dump({"log_stream_id": "l", "traces": traces})


@register_lines("Humanloop logs", ALL)
def build_humanloop(number, q):
    """Return a log of a prompt with its inputs, its message, its target and its judgements."""
    return {
        "id": f"log_{number}",
        "prompt": {"id": "pr_1", "path": "support/answer", "model": "m", "template": "Answer {{question}}"},
        "created_at": "2026-03-01T10:00:00Z",
        "inputs": {"question": q["query"], "context": "\n---\n".join(q["chunks"])},
        "output": q["answer"],
        "output_message": {"role": "assistant", "content": q["answer"]},
        "target": {"output": q["reference"]},
        "provider_latency": 0.8,
        "evaluator_logs": [{"judgment": True, "log": "The answer is the one that was expected."}],
    }


@register_file("PromptLayer history", "t.csv")
def build_promptlayer():
    """Return a table in which two columns hold objects as text."""
    rows = []
    for n, q in enumerate(QUESTIONS):
        variables = json.dumps({"question": q["query"], "documents": q["chunks"]})
        response = json.dumps({"choices": [{"message": {"role": "assistant", "content": q["answer"]}}]})
        rows.append([n, "answer-v3", variables, response, "prod,eu", "", 0.002])
    return write_table(
        ["request_id", "prompt_name", "input_variables", "request_response", "tags", "score", "price"], rows
    )


@register_lines("Literal AI thread")
def build_literal(number, q):
    """Return a thread with its steps, of which two are messages and one is a search."""
    return {
        "id": f"th{number}",
        "participant": {"identifier": "u"},
        "tags": [],
        "steps": [
            {"id": "1", "type": "user_message", "name": "user", "input": {}, "output": {"content": q["query"]}},
            {
                "id": "2",
                "parentId": "1",
                "type": "retrieval",
                "name": "search",
                "input": {"content": q["query"]},
                "output": {"content": [{"text": text, "page": 1} for text in q["chunks"]]},
            },
            {"id": "3", "type": "assistant_message", "name": "bot", "input": {}, "output": {"content": q["answer"]}},
        ],
    }


@register_lines("Lunary runs")
def build_lunary(number, q):
    """Return a run with its children, one of which is a retriever."""
    search = {"type": "retriever", "name": "vector store", "input": q["query"]}
    return {
        "id": f"r{number}",
        "type": "agent",
        "name": "helper",
        "createdAt": "2026-03-01T10:00:00Z",
        "endedAt": "2026-03-01T10:00:02Z",
        "input": [{"role": "user", "text": q["query"]}],
        "output": {"role": "ai", "text": q["answer"]},
        "feedback": {"thumb": "up", "comment": "Thank you, this was a good answer."},
        "tokens": {"completion": 9, "prompt": 80, "total": 89},
        "status": "success",
        "children": [{**search, "output": [{"title": "rules", "summary": text} for text in q["chunks"]]}],
    }


@register_lines("Bedrock model evaluation", NO_CONTEXTS)
def build_bedrock_evaluation(number, q):
    """Return a judged record with the response of a model, without contexts."""
    score = {"metricName": "Correctness", "result": 1.0, "evaluatorDetails": [{"explanation": "It is all right."}]}
    return {
        "automatedEvaluationResult": {"scores": [score]},
        "inputRecord": {"prompt": q["query"], "referenceResponse": q["reference"], "category": "hire"},
        "modelResponses": [{"response": q["answer"], "modelIdentifier": "m"}],
    }


@register_lines("Azure AI Search results")
def build_azure_search(number, q):
    """Return the results of a search as its service names them, beside the question and the answer."""
    results = [{"@search.score": 1.5, "chunk_id": f"c{n}", "chunk": t, "title": "r"} for n, t in enumerate(q["chunks"])]
    return {"search": q["query"], "@odata.count": 3, "value": results, "answer": q["answer"]}


@register_lines("Vercel AI SDK messages")
def build_vercel(number, q):
    """Return a chat whose messages have parts, among them the output of a tool."""
    results = [{"name": text, "similarity": 0.8} for text in q["chunks"]]
    parts = [
        {"type": "step-start"},
        {
            "type": "tool-getInformation",
            "toolCallId": "c1",
            "state": "output-available",
            "input": {"question": q["query"]},
            "output": results,
        },
        {"type": "step-start"},
        {"type": "text", "text": q["answer"], "state": "done"},
    ]
    return {
        "id": f"chat{number}",
        "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": q["query"]}]},
            {"id": "m2", "role": "assistant", "metadata": {"model": "m"}, "parts": parts},
        ],
    }


@register_lines("OpenAI vector store search")
def build_vector_store(number, q):
    """Return a page of search results whose contents are lists of parts."""
    data = [
        {
            "file_id": f"file-{n}",
            "filename": "rules.md",
            "score": 0.9,
            "attributes": {"author": "shop"},
            "content": [{"type": "text", "text": text}],
        }
        for n, text in enumerate(q["chunks"])
    ]
    page = {"object": "vector_store.search_results.page", "search_query": q["query"], "data": data, "has_more": False}
    return {"retrieval": page, "output_text": q["answer"]}


@register_lines("Zendesk tickets")
def build_zendesk(number, q):
    """Return a ticket with the comments on it, and the articles that were suggested."""
    return {
        "ticket_id": number,
        "subject": "A question",
        "status": "solved",
        "comments": [
            {"author": {"role": "end-user", "name": "Ann"}, "body": q["query"], "public": True},
            {"author": {"role": "agent", "name": "Bot"}, "body": q["answer"], "public": True},
        ],
        "suggested_articles": [{"article_id": n, "title": "Rules", "body": text} for n, text in enumerate(q["chunks"])],
    }


@register_file("a wide table with an index", "t.csv", ALL)
def build_wide():
    """Return a frame as pandas writes it, with an index without a name and a column for each of five contexts."""
    rows = [
        [n, q["query"], *q["chunks"], *[""] * (5 - len(q["chunks"])), q["answer"], q["reference"]]
        for n, q in enumerate(QUESTIONS)
    ]
    return write_table(["", "Question", *(f"ctx_{n}" for n in range(1, 6)), "answer_pred", "answer_gold"], rows)


@register_file("a wide table with titles", "t.csv", ALL)
def build_wide_titles():
    """Return a table in which the text, the title and the score of each passage are columns."""
    head = ["row", "user_query"]
    head += [f"doc{n}_{part}" for n in (1, 2, 3) for part in ("title", "text", "score")]
    rows = []
    for n, q in enumerate(QUESTIONS):
        cells = [cell for text in q["chunks"] for cell in ("Rules", text, 0.5)] + [""] * (9 - 3 * len(q["chunks"]))
        rows.append([n, q["query"], *cells, q["answer"], q["reference"]])
    return write_table([*head, "llm_response", "human_reference"], rows)


@register_file("a German spreadsheet", "t.csv", ALL)
def build_german():
    """Return a table with semicolons, German names and the code page of the desktop."""
    head = ["Nr", "Frage", "Kontext 1", "Kontext 2", "Kontext 3", "Antwort des Modells", "Erwartete Antwort", "Prüfer"]
    rows = [
        [n, q["query"], *q["chunks"], *[""] * (3 - len(q["chunks"])), q["answer"], q["reference"], "Jörg"]
        for n, q in enumerate(QUESTIONS)
    ]
    return write_table(head, rows, delimiter=";")


@register_file("a French spreadsheet", "t.csv", ALL)
def build_french():
    """Return a table with French names, the passages joined in one cell."""
    head = ["identifiant", "question posée", "passages récupérés", "réponse générée", "réponse attendue", "date"]
    rows = [
        [f"q{n}", q["query"], " ||| ".join(q["chunks"]), q["answer"], q["reference"], "2026-03-01"]
        for n, q in enumerate(QUESTIONS)
    ]
    return write_table(head, rows, delimiter=";")


@register_file("XML turned to JSON", "t.json", ALL)
def build_from_xml():
    """Return what a converter makes of XML: attributes with a mark, and lists only where there are several."""
    records = []
    for n, q in enumerate(QUESTIONS):
        passages = [{"@rank": str(place), "#text": text} for place, text in enumerate(q["chunks"], 1)]
        records.append(
            {
                "@id": str(n),
                "question": {"@lang": "en", "#text": q["query"]},
                "passages": {"passage": passages[0] if len(passages) == 1 else passages},
                "response": {"#text": q["answer"]},
                "expected": q["reference"],
            }
        )
    return dump({"export": {"@version": "1", "record": records}})


@register_file("a frame by columns", "t.json", ALL)
def build_by_columns():
    """Return a frame as `to_json` writes it: columns of values by their index."""
    names = {"question": "query", "contexts": "chunks", "generated": "answer", "ground_truth": "reference"}
    return json.dumps({name: {str(n): q[key] for n, q in enumerate(QUESTIONS)} for name, key in names.items()}).encode()


@register_file("a frame with its schema", "t.json", ALL)
def build_by_schema():
    """Return a frame as `to_json(orient="table")` writes it."""
    fields = [{"name": name, "type": "string"} for name in ("index", "prompt", "documents", "completion", "ideal")]
    data = [
        {"index": n, "prompt": q["query"], "documents": q["chunks"], "completion": q["answer"], "ideal": q["reference"]}
        for n, q in enumerate(QUESTIONS)
    ]
    schema = {"fields": fields, "primaryKey": ["index"], "pandas_version": "1.4.0"}
    return json.dumps({"schema": schema, "data": data}).encode()


@register_file("structures in Parquet", "t.parquet", ALL)
def build_structures():
    """Return a columnar file whose columns are structures."""
    import polars

    rows = [
        {
            "rid": n,
            "request": {"text": q["query"], "lang": "en"},
            "retrieval": [
                {"chunk": {"cid": f"c{place}", "body": text}, "rank": place} for place, text in enumerate(q["chunks"])
            ],
            "generation": {"text": q["answer"], "model": "m"},
            "label": {"gold_answer": q["reference"], "annotator": "a"},
        }
        for n, q in enumerate(QUESTIONS)
    ]
    out = io.BytesIO()
    polars.DataFrame(rows).write_parquet(out)
    return out.getvalue()


@register_lines("Vectara")
def build_vectara(number, q):
    """Return the answer of a search service, which it calls a summary."""
    results = [
        {"text": text, "score": 0.6, "part_metadata": {"page": 1}, "document_id": f"d{n}"}
        for n, text in enumerate(q["chunks"])
    ]
    return {
        "query": q["query"],
        "summary": q["answer"],
        "response_language": "eng",
        "search_results": results,
        "factual_consistency_score": 0.9,
    }


@register_lines("Tavily")
def build_tavily(number, q):
    """Return the results of a web search with an answer."""
    results = [
        {"title": "Rules", "url": f"https://a/{n}", "content": text, "score": 0.6, "raw_content": None}
        for n, text in enumerate(q["chunks"])
    ]
    return {
        "query": q["query"],
        "follow_up_questions": None,
        "answer": q["answer"],
        "images": [],
        "results": results,
        "response_time": 1.2,
    }


@register_lines("Vertex AI Search answers")
def build_vertex_search(number, q):
    """Return an answer with references to pieces of documents."""
    references = [
        {"chunkInfo": {"content": text, "relevanceScore": 0.7, "documentMetadata": {"title": "Rules"}}}
        for text in q["chunks"]
    ]
    steps = [{"state": "SUCCEEDED", "description": "Rephrase the query and search.", "actions": []}]
    return {
        "query": {"text": q["query"], "queryId": f"q{number}"},
        "answer": {
            "name": f"projects/1/answers/{number}",
            "state": "SUCCEEDED",
            "answerText": q["answer"],
            "citations": [{"startIndex": "0", "endIndex": "5", "sources": [{"referenceId": "0"}]}],
            "references": references,
            "relatedQuestions": ["Where is the shop?"],
            "steps": steps,
        },
    }


@register_lines("FlashRAG", ALL)
def build_flashrag(number, q):
    """Return a result whose output holds what was retrieved and what was predicted."""
    results = [{"id": str(n), "contents": text} for n, text in enumerate(q["chunks"])]
    output = {"retrieval_result": results, "prompt": f"Answer. Question: {q['query']}", "pred": q["answer"]}
    return {
        "id": f"test_{number}",
        "question": q["query"],
        "golden_answers": [q["reference"]],
        "metadata": {},
        "output": {**output, "metric_score": {"em": 0.0}},
    }


@register_lines("RAGBench")
def build_ragbench(number, q):
    """Return an annotated response, whose sentences and explanations are texts, too."""
    return {
        "id": str(number),
        "question": q["query"],
        "documents": q["chunks"],
        "response": q["answer"],
        "generation_model_name": "m",
        "annotating_model_name": "n",
        "dataset_name": "bicycles",
        "documents_sentences": [[[f"{n}a", text]] for n, text in enumerate(q["chunks"])],
        "response_sentences": [["a", q["answer"]]],
        "sentence_support_information": [
            {
                "explanation": "The sentence is supported by the first document.",
                "fully_supported": True,
                "response_sentence_key": "a",
                "supporting_sentence_keys": ["0a"],
            }
        ],
        "unsupported_response_sentence_keys": [],
        "adherence_score": True,
        "overall_supported_explanation": "The response says what the first document says.",
        "relevance_explanation": "The first document is relevant to the question.",
        "all_relevant_sentence_keys": ["0a"],
        "trulens_groundedness": None,
        "relevance_score": 0.5,
    }


@register_lines("cloud events")
def build_cloud_event(number, q):
    """Return an event whose data are the trace."""
    return {
        "specversion": "1.0",
        "type": "shop.assistant.answered",
        "source": "/assistant/web",
        "id": f"ev-{number}",
        "time": "2026-03-01T10:00:00Z",
        "datacontenttype": "application/json",
        "data": {"userMessage": q["query"], "knowledgeChunks": q["chunks"], "assistantMessage": q["answer"]},
    }


@register_lines("log lines with an object as message")
def log_line(number, q):
    """Return a line of a log, whose message is an object as text."""
    reply = {"event": "rag", "q": q["query"], "ctx": [{"t": text, "s": 0.5} for text in q["chunks"]], "a": q["answer"]}
    return {"timestamp": 1_770_000_000_000 + number, "logStream": "i-1", "message": json.dumps(reply)}


@register_file("ChatGPT conversations", "conversations.json", ("query", "answer"))
def build_chatgpt():
    """Return conversations whose messages are a tree."""
    chats = []
    for n, q in enumerate(QUESTIONS):

        def node(name, parent, role, text):
            message = role and {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}}
            return {"id": name, "message": message or None, "parent": parent, "children": []}

        root, user, reply = f"r{n}", f"u{n}", f"a{n}"
        mapping = {root: {**node(root, None, None, None), "children": [user]}}
        mapping[user] = {**node(user, root, "user", q["query"]), "children": [reply]}
        mapping[reply] = node(reply, user, "assistant", q["answer"])
        chats.append({"title": "Bicycles", "create_time": 1.77e9, "mapping": mapping, "current_node": reply})
    return dump(chats)


@register_file("passages in the rows of Markdown", "t.jsonl")
def build_markdown():
    """Return records whose contexts are a Markdown list of sources."""
    records = [
        {
            "question": q["query"],
            "context": "\n\n".join(f"### Source {n}\n{text}" for n, text in enumerate(q["chunks"], 1)),
            "answer": q["answer"],
        }
        for q in QUESTIONS
    ]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def build_weave_calls(interleaved):
    """Return every call of a model that searches and writes, in the rows of one file."""
    groups = []
    for n, q in enumerate(QUESTIONS):

        def call(name, parent, inputs, output, n=n):
            return {
                "id": f"c{n}{name}",
                "trace_id": f"t{n}",
                "parent_id": parent,
                "op_name": f"weave:///shop/bicycles/op/{name}:v1",
                "started_at": f"2026-03-01T10:00:0{n}Z",
                "inputs": inputs,
                "output": output,
                "exception": None,
            }

        root = call("RagModel.predict", None, {"question": q["query"]}, {"answer": q["answer"]})
        search = call("RagModel.retrieve", root["id"], {"query": q["query"]}, [{"text": text} for text in q["chunks"]])
        reply = {"choices": [{"message": {"role": "assistant", "content": q["answer"]}}]}
        asked = {"messages": [{"role": "user", "content": f"Answer this: {q['query']}"}]}
        groups.append([root, search, call("openai.chat.completions.create", root["id"], asked, reply)])
    rows = [row for group in (zip(*groups, strict=True) if interleaved else groups) for row in group]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


register_file("all calls of Weave", "t.jsonl")(lambda: build_weave_calls(False))
register_file("all calls of Weave, by their time", "t.jsonl")(lambda: build_weave_calls(True))


@register_file("all spans of Braintrust", "t.jsonl", ALL)
def build_braintrust_spans():
    """Return the rows of an experiment with the spans below each case."""
    rows = []
    for n, q in enumerate(QUESTIONS):
        root = {**build_braintrust(n, q), "output": q["answer"]}
        shared = {"root_span_id": f"s{n}", "span_parents": [f"s{n}"], "is_root": False, "expected": None, "scores": {}}
        search = {"span_attributes": {"name": "retrieve", "type": "function"}, "input": q["query"]}
        write = {"span_attributes": {"name": "Chat Completion", "type": "llm"}}
        write |= {"input": [{"role": "user", "content": q["query"]}]}
        write |= {"output": [{"message": {"role": "assistant", "content": q["answer"]}, "index": 0}]}
        passages = [{"id": str(place), "content": text} for place, text in enumerate(q["chunks"])]
        rows += [root, {"id": f"b{n}r", "span_id": f"r{n}", **shared, **search, "output": passages}]
        rows.append({"id": f"b{n}w", "span_id": f"w{n}", **shared, **write})
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@register_lines("documents in tags")
def build_tagged(number, q):
    """Return a context in which each document stands in tags of its own."""
    tags = "\n".join(f'<document index="{n}">\n{text}\n</document>' for n, text in enumerate(q["chunks"], 1))
    return {"question": q["query"], "context": f"<documents>\n{tags}\n</documents>", "response": q["answer"]}


@register_lines("a record within metadata", ALL)
def build_within_metadata(number, q):
    """Return an object of a store whose text is the answer, and whose metadata are all the rest."""
    rest = {"question": q["query"], "sources": q["chunks"], "expected_answer": q["reference"], "topic": "hire"}
    return {"id": f"v{number}", "answer": q["answer"], "metadata": rest}


@register_lines("a prompt in tags")
def build_tagged_prompt(number, q):
    """Return a request whose prompt holds the passages and the question in tags."""
    passages = "".join(f"<passage>{text}</passage>\n" for text in q["chunks"])
    prompt = f"Answer from the passages.\n<passages>\n{passages}</passages>\n\n<question>{q['query']}</question>"
    return {"prompt": prompt, "completion": q["answer"]}
