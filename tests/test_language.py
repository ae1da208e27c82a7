"""The vocabulary of the code, as `checks/language.py` checks it."""

import ast

from checks.language import ROOT, check_function_names

MODULE = "def figures(): ...\n\n\ndef _measure_memory(): ...\n\n\ndef is_known(): ...\n\n\ndef spent(): ...\n"


def list_lines(path):
    return [problem.line for problem in check_function_names(ROOT / path, ast.parse(MODULE))]


def test_functions_of_benchmarks_checks_and_docs_open_with_a_verb_or_a_predicate():
    assert [list_lines(f"{folder}/module.py") for folder in ("benchmarks", "checks", "docs")] == [[1, 10]] * 3


def test_functions_of_the_package_and_of_the_fault_bench_are_not_checked_for_a_verb():
    assert list_lines("src/ragfault/module.py") == list_lines("benchmarks/faults/module.py") == []
