"""A real worker, on the database of the running test, whose shop's handler hangs: `python -m tests.django.operations.hanging_worker`."""

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
    project.MANAGERS = [("Owner", "owner@shop.example")]  # type: ignore[attr-defined]
    project.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"  # type: ignore[attr-defined]
    import django

    django.setup()
    from django.core.management import call_command

    from tillgate import hooks

    def hang(*_: object) -> None:
        sys.stdout.write("the handler begins\n")
        sys.stdout.flush()
        time.sleep(60)

    [shop] = [one for one in hooks.plugin_manager().hook.tillgate_payment_paid.get_hookimpls() if one.plugin_name == told["plugin"]]
    with mock.patch.object(shop, "function", hang):
        call_command("tillgate", "worker", "--interval", "1")


if __name__ == "__main__":
    main()
