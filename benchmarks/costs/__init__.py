"""The parts of `benchmarks.judge_cost`: a counting endpoint, the traces, and a runner for each tool.

What runs beside another tool (`running.py` and the `run_*.py` of the others) needs nothing of ragfault.
"""
