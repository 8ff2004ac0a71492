"""A real worker, on the database of the running test, whose shop's handler hangs: `python -m
tests.django.outbox.hanging_worker`.
"""

from __future__ import annotations

import json
import sys
import time
from unittest import mock


def main() -> None:
    """Run `manage.py tillgate worker`."""
    told = json.loads(sys.argv[1])
    from tests.django import project

    project.DATABASES["default"]["NAME"] = told["database"]
    project.TILLGATE.update(told["tillgate"])
    import django

    django.setup()
    from django.core.management import call_command

    from tillgate import hooks
    from tillgate.django.management.subcommands import worker

    def ask_the_erp(*_: object) -> None:
        sys.stdout.write("the handler begins\n")
        sys.stdout.flush()
        time.sleep(60)

    [shop] = [
        one
        for one in hooks.plugin_manager().hook.tillgate_payment_paid.get_hookimpls()
        if one.plugin_name == told["plugin"]
    ]
    with (
        mock.patch.object(shop, "function", ask_the_erp),
        mock.patch.object(worker, "HANGS_AFTER_SECONDS", 2),
    ):
        call_command("tillgate", "worker", "--interval", "1")


if __name__ == "__main__":
    main()
