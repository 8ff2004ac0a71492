"""The worker: a table of chores (`chores.py`), their runner (`runner.py`), and its runs
(`run.py`).
"""
