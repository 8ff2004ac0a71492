"""The worker: a table of chores (`chores.py`), the runner that does them (`runner.py`), and the runs that use it (`run.py`)."""
