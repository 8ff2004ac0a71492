"""`python -m stripe_emulator`, in the folder of the plugin: the fake with its pages, until it is
stopped. `make demo GATEWAY=stripe` runs it.
"""

import argparse
import threading

from stripe_emulator.pages import ClickableStripe

parser = argparse.ArgumentParser(prog="stripe_emulator", description=__doc__)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--merchant", default="The shop", help="the name on the payment page")
parser.add_argument("--notify", required=True, help="the shop's address for events")
parser.add_argument("--secret", required=True, help="the secret that signs the events")
options = parser.parse_args()
with ClickableStripe(**vars(options)) as stripe:
    print(f"An imitation of Stripe at {stripe.url}. No real money moves.", flush=True)  # noqa: T201
    threading.Event().wait()
