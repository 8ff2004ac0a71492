"""Django's command line for the shop: `.venv/bin/python example_shop/manage.py migrate`."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    # the folder that holds the package, in place of the package's own
    sys.path[0] = str(Path(__file__).parents[1])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_shop.settings")
    execute_from_command_line(sys.argv)
