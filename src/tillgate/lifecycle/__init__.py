"""Every status, every transition, and the decision that follows from a gateway's answer. Pure: no
I/O and no clock.

One module per machine: `payment`, `refund`, `order`, `outbox`, `review`. `interpret` turns an
answer, in context, into a decision. Each module's `__all__` lists its public names.
"""

from tillgate.lifecycle.interpret import *  # noqa: F403
from tillgate.lifecycle.machine import IllegalTransition as IllegalTransition
from tillgate.lifecycle.machine import Transitions as Transitions
from tillgate.lifecycle.machine import move as move
from tillgate.lifecycle.order import *  # noqa: F403
from tillgate.lifecycle.outbox import *  # noqa: F403
from tillgate.lifecycle.payment import *  # noqa: F403
from tillgate.lifecycle.refund import *  # noqa: F403
from tillgate.lifecycle.review import *  # noqa: F403
