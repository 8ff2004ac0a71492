"""Getpaid's simulator as a process: started by `simulator.py` in an environment of Python 3.12.

It is the simulator as its authors start it, and two addresses more, which read and change nothing:
`/-/storage` shows its orders, and `/-/notify/<order>` lets it send a notification about an order as
it stands.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from getpaid_payu.simulator.webhooks import trigger_payu_webhook
from getpaid_simulator.app import create_app
from litestar import Request, get, post

JSON = dict[str, Any]


@get("/-/storage", sync_to_thread=False)
def storage(request: Request[Any, Any, Any]) -> list[JSON]:
    """Return the orders, oldest first, each with its refunds."""
    held = request.app.state.storage
    return [
        {**order, "refunds": held.get_refunds(order["id"])}
        for order in held.list_orders_by_provider("payu")
    ]


@post("/-/notify/{order_id:str}")
async def notify(request: Request[Any, Any, Any], order_id: str) -> JSON:
    """Send the notification of an order."""
    state = request.app.state
    config = dict(state.provider_configs["payu"])
    sent = await trigger_payu_webhook(order_id, state.storage, config, state.webhook_transport)
    return {"sent": sent}


app = create_app()
app.register(storage)
app.register(notify)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
