"""Carries out orders: `python -m tools.benchmarks.acts MODULE` reads lines of JSON, answers each.

A line names an act of the module and its arguments. With DJANGO_SETTINGS_MODULE set, Django is set
up before the module is imported.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module


def main() -> None:
    """Carry out one act after the other, until the process that started this one closes the pipe,
    or dies.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its starter ends it
    if "DJANGO_SETTINGS_MODULE" in os.environ:
        import django

        django.setup()
    actions = import_module(sys.argv[1]).ACTIONS
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(actions[name](**arguments)), flush=True)


if __name__ == "__main__":
    main()
