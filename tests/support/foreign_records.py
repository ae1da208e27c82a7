"""Records in the public layouts of other tools, all of one question, written for these tests."""

import json

QUERY = "When does the last ferry leave?"
ANSWER = "It leaves at 22:40."
REFERENCE = "The last ferry leaves at 22:40."
FIRST = "The last ferry leaves the harbour at 22:40 every day."
SECOND = "Tickets are sold on board by the crew."
GREETING = [("user", "Hello"), ("assistant", "Hi!")]


def say(role_key, text_key, *names):
    """Return a conversation whose last question is answered, in the keys and names of a tool."""
    spoken = [*GREETING, ("user", QUERY), ("assistant", ANSWER)]
    names = dict(zip(("user", "assistant"), names, strict=True))
    return [{role_key: names[role], text_key: text} for role, text in spoken]


def build_langchain_document(text):
    """Return a document as LangChain serializes it."""
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "document", "Document"],
        "kwargs": {"page_content": text, "metadata": {"source": "a.md"}},
    }


def build_mlflow_span(name, kind, span, parent, inputs, outputs):
    """Return a span as MLflow writes it into a trace."""
    return {
        "name": name,
        "context": {"trace_id": "0x" + "a" * 32, "span_id": "0x" + span * 16},
        "parent_id": parent and "0x" + parent * 16,
        "start_time": 1_700_000_000_000_000_000,
        "end_time": 1_700_000_001_000_000_000,
        "attributes": {
            "mlflow.spanType": json.dumps(kind),
            "mlflow.spanInputs": json.dumps(inputs),
            "mlflow.spanOutputs": json.dumps(outputs),
        },
    }


def mlflow_3_span(name, kind, span, parent, inputs, outputs):
    """Return a span as MLflow 3 writes it: ids in base64, as protobuf has them in JSON."""
    record = build_mlflow_span(name, kind, "b", None, inputs, outputs)
    del record["context"], record["parent_id"]
    return {**record, "trace_id": "iJd1iWZmBZCznenn1tMMaw==", "span_id": span, "parent_span_id": parent}


FULL = {"query": QUERY, "chunks": [FIRST, SECOND], "answer": ANSWER, "reference": REFERENCE}
NO_REFERENCE = {**FULL, "reference": None}
ONE_CHUNK = {**FULL, "chunks": [FIRST]}
DATA_SET = {"query": QUERY, "chunks": None, "answer": None, "reference": REFERENCE}

RECORDS = {
    "ragas": (
        {"user_input": QUERY, "retrieved_contexts": [FIRST, SECOND], "response": ANSWER, "reference": REFERENCE},
        FULL,
    ),
    "ragas before 0.2": (
        {"question": QUERY, "contexts": [FIRST, SECOND], "answer": ANSWER, "ground_truth": REFERENCE},
        FULL,
    ),
    "deepeval golden": (
        {
            "input": QUERY,
            "actual_output": ANSWER,
            "expected_output": REFERENCE,
            "retrieval_context": [FIRST, SECOND],
            "context": [FIRST],
            "source_file": "x.md",
            "comments": None,
        },
        FULL,
    ),
    "deepeval test run": (
        {
            "testRunData": {
                "testCases": [
                    {
                        "name": "test_case_0",
                        "input": QUERY,
                        "actualOutput": ANSWER,
                        "expectedOutput": REFERENCE,
                        "retrievalContext": [FIRST, SECOND],
                        "success": True,
                        "metricsData": [{"name": "Faithfulness", "reason": "The answer is fine and good."}],
                    }
                ],
                "metricsScores": [],
            }
        },
        FULL,
    ),
    "deepeval conversation": (
        {
            "scenario": "A tourist asks about ferries.",
            "turns": [
                *say("role", "content", "user", "assistant")[:3],
                {"role": "assistant", "content": ANSWER, "retrieval_context": [FIRST, SECOND]},
            ],
            "expected_outcome": REFERENCE,
        },
        {**FULL, "history": GREETING},
    ),
    "ragchecker": (
        {
            "results": [
                {
                    "query_id": "0",
                    "query": QUERY,
                    "gt_answer": REFERENCE,
                    "response": ANSWER,
                    "retrieved_context": [{"doc_id": "a", "text": FIRST}, {"doc_id": "b", "text": SECOND}],
                }
            ]
        },
        FULL,
    ),
    "promptfoo": (
        {
            "evalId": "e1",
            "results": {
                "version": 3,
                "prompts": [{"raw": "Answer {{question}}", "label": "p"}],
                "results": [
                    {
                        "gradingResult": {"pass": True, "reason": "All assertions passed"},
                        "id": "r1",
                        "prompt": {"raw": "Answer the question " + QUERY, "label": "p"},
                        "promptIdx": 0,
                        "response": {"output": ANSWER, "tokenUsage": {"total": 10}},
                        "testCase": {"vars": {"question": QUERY, "context": FIRST}},
                        "vars": {"question": QUERY, "context": FIRST},
                    }
                ],
            },
            "config": {"description": "a run of the demo"},
        },
        {**ONE_CHUNK, "reference": None},
    ),
    "giskard": (
        {
            "id": "g1",
            "question": QUERY,
            "reference_answer": REFERENCE,
            "reference_context": f"Document 1: {FIRST}\n\nDocument 2: {SECOND}",
            "conversation_history": [],
            "metadata": {"question_type": "simple"},
        },
        DATA_SET,
    ),
    "haystack": (
        {
            "prompt_builder": {"question": QUERY},
            "retriever": {"documents": [{"id": "a", "content": FIRST, "meta": {}, "score": 0.9}, {"content": SECOND}]},
            "llm": {"replies": [ANSWER], "meta": [{"model": "m"}]},
        },
        NO_REFERENCE,
    ),
    "cohere": (
        {
            "message": QUERY,
            "text": ANSWER,
            "documents": [{"id": "doc_0", "snippet": FIRST}, {"id": "doc_1", "snippet": SECOND}],
            "citations": [{"start": 10, "end": 18, "text": "at 22:40", "document_ids": ["doc_0"]}],
        },
        NO_REFERENCE,
    ),
    "openai messages": (
        {
            "messages": [
                *say("role", "content", "user", "assistant")[:3],
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function"}]},
                {"role": "tool", "tool_call_id": "c1", "content": json.dumps([FIRST, SECOND])},
                {"role": "assistant", "content": ANSWER},
            ]
        },
        {**NO_REFERENCE, "history": GREETING},
    ),
    "openai responses": (
        {
            "id": "resp_1",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": QUERY}]}],
            "output": [
                {
                    "type": "file_search_call",
                    "results": [
                        {"file_id": "f1", "filename": "a.md", "score": 0.9, "text": FIRST},
                        {"file_id": "f2", "filename": "b.md", "score": 0.5, "text": SECOND},
                    ],
                },
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
            ],
        },
        NO_REFERENCE,
    ),
    "anthropic": (
        {
            "request": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "document", "source": {"type": "text", "data": FIRST}, "title": "Ferries"},
                            {"type": "text", "text": QUERY},
                        ],
                    }
                ]
            },
            "response": {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "It leaves "},
                    {"type": "text", "text": "at 22:40.", "citations": [{"cited_text": FIRST, "document_index": 0}]},
                ],
            },
        },
        {**ONE_CHUNK, "reference": None},
    ),
    "azure": ({"query": QUERY, "context": FIRST, "response": ANSWER, "ground_truth": REFERENCE}, ONE_CHUNK),
    "azure results": (
        {
            "rows": [
                {
                    "inputs.query": QUERY,
                    "inputs.context": FIRST,
                    "inputs.response": ANSWER,
                    "inputs.ground_truth": REFERENCE,
                    "outputs.groundedness.groundedness_reason": "The response is well grounded in the context.",
                }
            ],
            "metrics": {"groundedness": 5},
        },
        ONE_CHUNK,
    ),
    "azure conversation": (
        {
            "conversation": {
                "messages": [
                    {"role": "user", "content": QUERY},
                    {"role": "assistant", "content": ANSWER, "context": FIRST},
                ]
            }
        },
        {**ONE_CHUNK, "reference": None},
    ),
    "vertex": (
        {
            "prompt": QUERY,
            "context": FIRST,
            "response": ANSWER,
            "reference": REFERENCE,
            "groundedness/explanation": "The response is well grounded in the context.",
        },
        ONE_CHUNK,
    ),
    "langchain RetrievalQA": (
        {
            "query": QUERY,
            "result": ANSWER,
            "source_documents": [{"page_content": text, "metadata": {"source": "a"}} for text in (FIRST, SECOND)],
        },
        NO_REFERENCE,
    ),
    "langchain retrieval chain": (
        {
            "input": QUERY,
            "chat_history": [["Hello", "Hi!"]],
            "context": [build_langchain_document(FIRST), build_langchain_document(SECOND)],
            "answer": ANSWER,
        },
        {**NO_REFERENCE, "history": GREETING},
    ),
    "llamaindex response": (
        {
            "query": QUERY,
            "response": ANSWER,
            "source_nodes": [
                {"node": {"id_": "n1", "metadata": {"file_name": "a.md"}, "text": FIRST}, "score": 0.8},
                {"node": {"id_": "n2", "metadata": {}, "text": SECOND}, "score": 0.3},
            ],
        },
        NO_REFERENCE,
    ),
    "llamaindex LabelledRagDataset": (
        {
            "examples": [
                {
                    "query": QUERY,
                    "query_by": {"model_name": "m", "type": "ai"},
                    "reference_contexts": [FIRST],
                    "reference_answer": REFERENCE,
                    "reference_answer_by": {"type": "ai"},
                }
            ]
        },
        DATA_SET,
    ),
    "llamaindex QA dataset": (
        {"queries": {"q1": QUERY}, "corpus": {"d1": FIRST}, "relevant_docs": {"q1": ["d1"]}, "mode": "text"},
        {**DATA_SET, "reference": None},
    ),
    "hotpotqa": (
        {
            "_id": "h1",
            "question": QUERY,
            "answer": REFERENCE,
            "supporting_facts": [["Ferries", 0]],
            "context": [["Ferries", [FIRST]], ["Tickets", [SECOND]]],
        },
        {**FULL, "answer": None},
    ),
    "squad": (
        {
            "version": "v2.0",
            "data": [
                {
                    "title": "Ferries",
                    "paragraphs": [
                        {
                            "context": FIRST,
                            "qas": [
                                {"question": QUERY, "id": "s", "answers": [{"text": REFERENCE, "answer_start": 0}]}
                            ],
                        }
                    ],
                }
            ],
        },
        {**ONE_CHUNK, "answer": None},
    ),
    "ms marco": (
        {
            "answers": [REFERENCE],
            "passages": {"is_selected": [1, 0], "passage_text": [FIRST, SECOND], "url": ["http://a", "http://b"]},
            "query": QUERY,
            "query_id": 7,
            "query_type": "NUMERIC",
        },
        {**FULL, "answer": None},
    ),
    "crag": (
        {
            "interaction_id": "c1",
            "query": QUERY,
            "answer": REFERENCE,
            "alt_ans": ["twenty to eleven"],
            "search_results": [{"page_name": "F", "page_url": "http://a", "page_snippet": "…", "page_result": FIRST}],
        },
        {**ONE_CHUNK, "answer": None},
    ),
    "mt-rag": (
        {
            "conversation_id": "m1",
            "task_id": "m1<::>2",
            "turn": "2",
            "contexts": [{"document_id": "a", "score": 18.7, "text": FIRST, "title": "F"}],
            "input": say("speaker", "text", "user", "agent")[:3],
            "targets": [{"speaker": "agent", "text": REFERENCE}],
            "Answerability": ["ANSWERABLE"],
        },
        {**ONE_CHUNK, "answer": None, "history": GREETING},
    ),
    "databricks": (
        {
            "request_id": "r",
            "request": {"messages": [{"role": "user", "content": QUERY}]},
            "response": {"choices": [{"message": {"role": "assistant", "content": ANSWER}}]},
            "retrieved_context": [{"doc_uri": "a.md", "content": FIRST}, {"doc_uri": "b.md", "content": SECOND}],
            "expected_response": REFERENCE,
        },
        FULL,
    ),
    "mlflow table": (
        {
            "columns": ["inputs", "outputs", "source_documents", "ground_truth", "token_count"],
            "data": [[QUERY, ANSWER, [{"page_content": FIRST}, {"page_content": SECOND}], REFERENCE, 12]],
        },
        FULL,
    ),
    "mlflow trace": (
        {
            "info": {"request_id": "tr-1", "status": "OK"},
            "data": {
                "spans": [
                    build_mlflow_span("ask", "CHAIN", "b", None, {"question": QUERY}, ANSWER),
                    build_mlflow_span(
                        "find", "RETRIEVER", "c", "b", {"query": QUERY}, [{"page_content": t} for t in (FIRST, SECOND)]
                    ),
                ]
            },
        },
        NO_REFERENCE,
    ),
    "mlflow trace with ids in base64": (
        {
            "trace_id": "tr-" + "aa" * 16,
            "trace_metadata": {},
            "request": {"question": QUERY},
            "response": ANSWER,
            "spans": [
                mlflow_3_span("ask", "CHAIN", "7lIAdUdWpaQ=", None, {"question": QUERY}, ANSWER),
                mlflow_3_span(
                    *("find", "RETRIEVER", "pQ6+eGgKhwY=", "7lIAdUdWpaQ=", {"query": QUERY}),
                    [{"page_content": text, "metadata": {}} for text in (FIRST, SECOND)],
                ),
            ],
        },
        NO_REFERENCE,
    ),
    "haystack answer": (
        {
            "data": ANSWER,
            "query": QUERY,
            "documents": [{"id": f"d{at}", "content": text, "meta": {}} for at, text in enumerate((FIRST, SECOND))],
            "meta": {"all_messages": [ANSWER]},
        },
        NO_REFERENCE,
    ),
    "langsmith batch": (
        {
            "post": [
                {"id": "1", "trace_id": "1", "run_type": "chain", "inputs": {"question": QUERY}},
                {
                    "id": "2",
                    "trace_id": "1",
                    "parent_run_id": "1",
                    "run_type": "retriever",
                    "inputs": {"query": QUERY},
                    "outputs": {"documents": [{"page_content": FIRST}, {"page_content": SECOND}]},
                },
            ],
            "patch": [{"id": "1", "trace_id": "1", "outputs": {"answer": ANSWER}}],
        },
        NO_REFERENCE,
    ),
    "bedrock": (
        {
            "conversationTurns": [
                {
                    "prompt": {"content": [{"text": QUERY}]},
                    "referenceResponses": [{"content": [{"text": REFERENCE}]}],
                    "output": {
                        "text": ANSWER,
                        "retrievedPassages": {
                            "retrievalResults": [{"name": "a", "content": {"text": t}} for t in (FIRST, SECOND)]
                        },
                    },
                }
            ]
        },
        FULL,
    ),
    "gemini": (
        {
            "request": {"contents": [{"role": "user", "parts": [{"text": QUERY}]}]},
            "response": {
                "candidates": [
                    {
                        "content": {"parts": [{"text": ANSWER}], "role": "model"},
                        "groundingMetadata": {
                            "groundingChunks": [{"retrievedContext": {"uri": "a", "text": t}} for t in (FIRST, SECOND)]
                        },
                    }
                ]
            },
        },
        NO_REFERENCE,
    ),
    "langsmith example": (
        {"id": "e1", "dataset_id": "d1", "inputs": {"question": QUERY}, "outputs": {"answer": REFERENCE}},
        DATA_SET,
    ),
    "nested under other names": (
        {
            "req": {"user_query": QUERY},
            "pipeline": {
                "retriever": {"output": {"docs": [{"txt": FIRST, "sim": 0.5}, {"txt": SECOND}]}},
                "generator": {"reply": ANSWER},
            },
            "labels": {"gold_answer": REFERENCE},
        },
        FULL,
    ),
    "lists of text and score": (
        {"entries": [{"question": QUERY, "docs": [[FIRST, 0.9], [SECOND, 0.1]], "bot_answer": ANSWER}]},
        NO_REFERENCE,
    ),
    "an object by ids": (
        {
            "q1": {"question": QUERY, "docs": [FIRST, SECOND], "answer": ANSWER},
            "q2": {"question": "Who sells tickets?", "docs": [SECOND], "answer": "The crew."},
        },
        NO_REFERENCE,
    ),
    "columns of lists": (
        {"question": [QUERY, "Who?"], "answer": [ANSWER, "The crew."], "contexts": [[FIRST, SECOND], [SECOND]]},
        NO_REFERENCE,
    ),
    "parallel lists": (
        {"question": QUERY, "contexts": [FIRST, SECOND], "scores": [0.9, 0.1], "doc_ids": ["a", "b"], "answer": ANSWER},
        NO_REFERENCE,
    ),
    "a vector store": (
        {
            "question": QUERY,
            "results": {"ids": [["a", "b"]], "documents": [[FIRST, SECOND]], "distances": [[0.1, 0.2]]},
            "answer": ANSWER,
        },
        NO_REFERENCE,
    ),
    "a search engine": (
        {
            "question": QUERY,
            "search": {"hits": {"hits": [{"_id": "a", "_source": {"body": FIRST}}, {"_source": {"body": SECOND}}]}},
            "answer": ANSWER,
        },
        NO_REFERENCE,
    ),
    "numbered columns": (
        {"question": QUERY, "context_1": FIRST, "context_2": SECOND, "context_3": "", "answer": ANSWER},
        NO_REFERENCE,
    ),
    "speakers": (
        {"dialog": say("speaker", "text", "Customer", "Bot"), "docs": [FIRST, SECOND]},
        {**NO_REFERENCE, "history": GREETING},
    ),
    "a transcript": (
        {"transcript": f"User: Hello\nAssistant: Hi!\nUser: {QUERY}\nAssistant: {ANSWER}", "docs": {"a": FIRST}},
        {**ONE_CHUNK, "reference": None, "history": GREETING},
    ),
}
"""Name → a record or a document, and what its first trace holds."""

TABLES = {
    "semicolons": (
        f"question;context_1;context_2;answer\n{QUERY};{FIRST};{SECOND};{ANSWER}\nWho?;{SECOND};;The crew.\n",
        NO_REFERENCE,
    ),
    "separators in a cell": (f"question,contexts,answer\n{QUERY},{FIRST} ||| {SECOND},{ANSWER}\n", NO_REFERENCE),
    "lists in a cell": (
        "Question,Retrieved Documents,LLM Answer\n"
        f'{QUERY},"[{{""text"": ""{FIRST}""}}, {{""text"": ""{SECOND}""}}]",{ANSWER}\n',
        NO_REFERENCE,
    ),
    "an array as NumPy prints it": (
        f"question,contexts,answer\n{QUERY},['{FIRST}' '{SECOND}'],{ANSWER}\n",
        NO_REFERENCE,
    ),
    "documents as LangChain prints them": (
        f"question,contexts,answer\n{QUERY},[Document(page_content='{FIRST}')],{ANSWER}\n",
        {**ONE_CHUNK, "reference": None},
    ),
    "a row for each passage": (
        "query_id,query,query_run,passage_id,passage,generated_answer\n"
        f"q1,{QUERY},1,[1],{FIRST},{ANSWER}\nq1,{QUERY},1,[2],{SECOND},\nq2,Who?,1,[1],{SECOND},The crew.\n",
        NO_REFERENCE,
    ),
    "ranked rows": (
        f"qid,question,rank,passage,score,answer\n1,{QUERY},2,{SECOND},.2,{ANSWER}\n1,{QUERY},1,{FIRST},.9,{ANSWER}\n",
        NO_REFERENCE,
    ),
}
"""Name → a table as text, and what its first trace holds."""
