"""Whole files as databases, warehouses, spreadsheets and benchmarks store them, of the questions of exported files."""

import gzip
import io
import json

import numpy
import pyarrow
import pyarrow.feather
import pyarrow.parquet

from tests.support.exported_files import ALL, NO_KEY, QUESTIONS, dump, write_table

STORED = {}
"""Name of a shape → the name of its file, its builder, and the fields that it holds."""


def register_file(name, file, fields=ALL):
    """Register the builder of a whole file."""

    def register(build):
        STORED[name] = (file, build, fields)
        return build

    return register


def write_lines(build):
    """Write a record for each question, one a line."""
    return "".join(json.dumps(build(number, q), ensure_ascii=False) + "\n" for number, q in enumerate(QUESTIONS))


@register_file("a Polish table of Excel", "t.csv")
def build_excel_polish():
    """Return a table with semicolons, a mark of the byte order, and a line that names the separator."""
    rows = [[n, q["query"], json.dumps(q["chunks"]), q["answer"], q["reference"]] for n, q in enumerate(QUESTIONS, 1)]
    header = ["Lp.", "Pytanie", "Kontekst", "Odpowiedź", "Oczekiwana odpowiedź"]
    return b"\xef\xbb\xbfsep=;\r\n" + write_table(header, rows, delimiter=";")


@register_file("a Dutch table with tabs", "t.tsv")
def build_dutch_tabs():
    """Return a table with tabs, whose cells hold lines in quotes."""
    rows = []
    for q in QUESTIONS:
        passages = "\n\n".join(f"[{place}] {text}" for place, text in enumerate(q["chunks"], 1))
        rows.append([q["query"], passages, q["answer"], q["reference"], "goed"])
    header = ["Vraag", "Gevonden passages", "Antwoord", "Verwacht antwoord", "Beoordeling"]
    return write_table(header, rows, delimiter="\t")


@register_file("columns by paths", "t.csv", NO_KEY)
def build_normalized_json():
    """Return a table as `json_normalize` flattens records whose lists have a place in the name."""
    header = ["run.id", "request.question", "response.text"]
    header += [f"response.hits.{n}.{part}" for n in range(3) for part in ("content", "score", "source.file")]
    rows = []
    for number, q in enumerate(QUESTIONS):
        hits = [cell for n, text in enumerate(q["chunks"]) for cell in (text, 0.9 - n / 10, f"page{n}.md")]
        rows.append([f"r{number}", q["query"], q["answer"], *hits, *[""] * (9 - len(hits))])
    return write_table(header, rows)


@register_file("Parquet with structures in lists", "t.parquet")
def build_nested_parquet():
    """Return a columnar file with lists of structures, a map, and vectors."""
    passage = pyarrow.struct([("doc", pyarrow.struct([("body", pyarrow.large_string())])), ("sim", pyarrow.float32())])
    schema = pyarrow.schema(
        [
            ("question", pyarrow.large_string()),
            ("retrieved", pyarrow.list_(passage)),
            ("generated", pyarrow.struct([("answer", pyarrow.string()), ("tokens", pyarrow.int32())])),
            ("expected_answer", pyarrow.string()),
            ("tags", pyarrow.map_(pyarrow.string(), pyarrow.string())),
            ("question_vector", pyarrow.list_(pyarrow.float32(), 3)),
        ]
    )
    rows = [
        {
            "question": q["query"],
            "retrieved": [{"doc": {"body": text}, "sim": 0.5} for text in q["chunks"]],
            "generated": {"answer": q["answer"], "tokens": 12},
            "expected_answer": q["reference"],
            "tags": [("team", "shop")],
            "question_vector": [0.1, 0.2, 0.3],
        }
        for q in QUESTIONS
    ]
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), out)
    return out.getvalue()


@register_file("Feather with dictionary columns", "t.feather")
def build_feather():
    """Return an Arrow file whose texts are dictionary-encoded."""
    columns = {
        "prompt_text": pyarrow.array([q["query"] for q in QUESTIONS]).dictionary_encode(),
        "passages": pyarrow.array([q["chunks"] for q in QUESTIONS]),
        "model_answer": pyarrow.array([q["answer"] for q in QUESTIONS]).dictionary_encode(),
        "target": pyarrow.array([q["reference"] for q in QUESTIONS]),
        "model": pyarrow.array(["small"] * len(QUESTIONS)).dictionary_encode(),
    }
    out = io.BytesIO()
    pyarrow.feather.write_feather(pyarrow.table(columns), out, compression="uncompressed")
    return out.getvalue()


@register_file("objects by one id", "t.json")
def build_objects_by_id():
    """Return an object for each field, which holds the values by the id of the question."""
    fields = {"queries": "query", "contexts": "chunks", "responses": "answer", "references": "reference"}
    return dump({name: {f"q{n}": q[key] for n, q in enumerate(QUESTIONS)} for name, key in fields.items()})


@register_file("a table of Elasticsearch", "t.json")
def build_esql():
    """Return the response to a query of a search engine: columns with types, and values."""
    names = ("@timestamp", "question", "passages", "answer", "expected")
    columns = [{"name": name, "type": "date" if name[0] == "@" else "keyword"} for name in names]
    values = [["2026-03-01T10:00:00Z", q["query"], q["chunks"], q["answer"], q["reference"]] for q in QUESTIONS]
    return dump({"took": 12, "is_partial": False, "columns": columns, "values": values})


@register_file("compressed lines with comments", "t.jsonl.gz")
def build_commented_lines():
    """Return compressed JSON Lines with comments before and between them."""
    names = {"query": "question", "chunks": "docs", "answer": "reply", "reference": "ideal"}
    lines = write_lines(lambda number, q: {name: q[key] for key, name in names.items()}).splitlines(keepends=True)
    head = "# exported by nightly.py, 2026-03-01\n# one record a line\n"
    return gzip.compress((head + "\n// second part\n".join(["".join(lines[:2]), "".join(lines[2:])])).encode())


@register_file("a cell with an array of objects", "t.csv", NO_KEY)
def build_object_arrays():
    """Return a table as pandas writes one whose cells are arrays of objects."""
    rows = []
    for q in QUESTIONS:
        cell = numpy.empty(len(q["chunks"]), object)
        cell[:] = [{"page_content": text, "score": 0.25} for text in q["chunks"]]
        rows.append([q["query"], str(cell), q["answer"]])
    return write_table(["question", "retrieved_docs", "response"], rows)


@register_file("FlashRAG", "intermediate_data.json")
def build_flashrag():
    """Return the items of a benchmark with what was retrieved and predicted below `output`."""
    return dump(
        [
            {
                "id": f"test_{number}",
                "question": q["query"],
                "golden_answers": [q["reference"]],
                "output": {
                    "retrieval_result": [{"id": str(n), "contents": text} for n, text in enumerate(q["chunks"])],
                    "prompt": f"Answer the question based on the given document.\nQuestion: {q['query']}\nAnswer:",
                    "pred": q["answer"],
                    "metric_score": {"em": 0.0, "f1": 0.5},
                },
            }
            for number, q in enumerate(QUESTIONS)
        ]
    )


@register_file("RAGBench", "t.jsonl", NO_KEY)
def build_ragbench():
    """Return examples whose documents and response stand also in sentences with keys, and with explanations."""

    def build(number, q):
        sentences = [[[f"{n}a", text]] for n, text in enumerate(q["chunks"])]
        explanation = "The response repeats what the first document says about bicycles."
        support = {"response_sentence_key": "a", "explanation": explanation, "supporting_sentence_keys": ["0a"]}
        return {
            "id": f"{number}",
            "question": q["query"],
            "documents": q["chunks"],
            "response": q["answer"],
            "generation_model_name": "a-model",
            "annotating_model_name": "another-model",
            "dataset_name": "shop",
            "documents_sentences": sentences,
            "response_sentences": [["a", q["answer"]]],
            "sentence_support_information": [{**support, "fully_supported": True}],
            "unsupported_response_sentence_keys": [],
            "adherence_score": True,
            "overall_supported_explanation": "All sentences of the response are supported by the documents.",
            "relevance_explanation": "The first document says it.",
            "all_relevant_sentence_keys": ["0a"],
            "relevance_score": 0.5,
            "utilization_score": 0.5,
            "completeness_score": 1.0,
        }

    return write_lines(build).encode()


@register_file("MongoDB", "t.json")
def build_mongodb():
    """Return documents in extended JSON, whose numbers, dates and ids are objects."""

    def build(number, q):
        return {
            "_id": {"$oid": f"65f0c0ffee{number:014d}"},
            "createdAt": {"$date": "2026-03-01T10:00:00Z"},
            "question": q["query"],
            "sources": [{"text": text, "score": {"$numberDouble": "0.5"}} for text in q["chunks"]],
            "botAnswer": q["answer"],
            "goldAnswer": q["reference"],
            "latencyMs": {"$numberInt": "900"},
        }

    return write_lines(build).encode()


@register_file("DynamoDB", "t.json")
def build_dynamodb():
    """Return items whose values stand below the letter of their type."""

    def build(number, q):
        chunks = [{"M": {"text": {"S": text}, "score": {"N": "0.5"}}} for text in q["chunks"]]
        return {
            "Item": {
                "pk": {"S": f"trace#{number}"},
                "question": {"S": q["query"]},
                "chunks": {"L": chunks},
                "answer": {"S": q["answer"]},
                "expected_answer": {"S": q["reference"]},
                "cached": {"BOOL": False},
            }
        }

    return write_lines(build).encode()


@register_file("PostgreSQL", "t.csv")
def build_postgres():
    """Return a table as a database copies it, with an array of texts in curly brackets."""

    def quote(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    rows = []
    for number, q in enumerate(QUESTIONS, 1):
        array = "{" + ",".join(map(quote, q["chunks"])) + "}"
        rows.append([number, "2026-03-01 10:00:00+00", q["query"], array, q["answer"], q["reference"], "t"])
    return write_table(["id", "created_at", "question", "contexts", "answer", "expected_answer", "cached"], rows)


@register_file("OpenSearch", "t.jsonl", NO_KEY)
def build_opensearch():
    """Return responses of a search engine, the answer of the model below `ext`."""

    def build(number, q):
        hits = [
            {"_index": "help", "_id": f"d{n}", "_score": 1.5, "_source": {"passage_text": text, "lang": "en"}}
            for n, text in enumerate(q["chunks"])
        ]
        listed = {"total": {"value": len(hits), "relation": "eq"}, "max_score": 1.5, "hits": hits}
        rag = {"answer": q["answer"], "message_id": f"m{number}"}
        request = {
            "query": {"neural": {"passage_embedding": {"query_text": q["query"], "k": 5}}},
            "ext": {"generative_qa_parameters": {"llm_model": "m", "llm_question": q["query"], "context_size": 5}},
        }
        response = {"took": 9, "timed_out": False, "hits": listed, "ext": {"retrieval_augmented_generation": rag}}
        return {"request": request, "response": response}

    return write_lines(build).encode()


@register_file("a frame of polars as JSON", "t.json")
def build_polars_json():
    """Return a list of rows with Turkish names."""
    import polars

    rows = [
        {"soru": q["query"], "bulunan_metinler": q["chunks"], "cevap": q["answer"], "beklenen_cevap": q["reference"]}
        for q in QUESTIONS
    ]
    out = io.BytesIO()
    polars.DataFrame(rows).write_json(out)
    return out.getvalue()
