"""Small-scope exhaustion: everything that can happen to one order, in every order in which it can happen.

A shopper begins two payments, both are paid at the cashier, notices and a return come in, a sweeper sweeps, a clerk gives the money back;
one process may die and one fault may strike. Wherever actors switch, every choice is tried: who goes on next, who dies there, and at calls
and commits which fault strikes. What is left when nobody acts any more is swept until it is quiet, and judged as in any simulated world.

**States.** A state is a world and, of each actor, all that it has heard so far. A world comprises the rows, the gateway's book, what was
sent to it, what the judge remembers, and the time. What an actor does next follows from what it has heard, and from nothing else: clock,
chance, database and network are the scheduler's. So an actor can be brought to where it stood without forking anything: it begins anew,
and is told again what it heard. Nothing that it then sends or writes goes anywhere.

**Steps.** A step is what an actor does until it pauses. It depends on what the actor had heard and on the *parts* of the world that it
touches: the tables that its statements name, the gateway's book, the time. A step is played once for each content of those parts; in every
other world that has the same content in them it comes to the same, and only the parts that it changed are put in their places.

**Steps that change nothing.** A step that changes no part of the world, begins nobody and uses up no crash and no fault is seen by nobody
but the actor that takes it: it listens, and goes on knowing more. Between two changes of the world every actor takes such steps, or does
not, whatever the others do. So what is stored is no state alone but all those that one history of changes leaves possible: the world, and
of each actor the *set* of places where it may stand by then. A change is made from each of those places; those that change the same from
several of them are one, and lead to the set of places where the actor may stand after it. Each world that can come about, each change in
it, and each end, in which all may stand where they have nothing more to do, is found all the same; only the order of steps that nobody
could have seen is not told apart.

**What makes no difference.** Two worlds that differ in nothing but what follows here have the same future, and are taken for one:

- *The process that is over.* All that a process of the shop leaves to its actor is its answer. What it heard before is forgotten.
- *Instants.* All that happens between two jumps of the clock happens within a fraction of a second, while whatever is compared with an
  offset (a throttle, a lease, a look that is due) is whole seconds away. Of two instants of that time only the order can matter, and only
  where one is the moment of a change: *status_since* and *raised_at* are compared with the moment at which the gateway was asked, and what
  a change makes due is looked for later. So the clock advances with each such change (of a payment's or refund's status, an attention, a
  delivery), and not otherwise. Within a transaction it is half a tick later than outside: whoever asked before a change asked earlier.
- *The timeline.* No operation reads it. The judge and the audit read which events told a status, in which order per payment and refund.
- *Notices that were kept.* Nobody refers to one, and which slot it has plays no part before there are twenty.
- *What is only shown*: the columns of `ONLY_SHOWN` in `rows`.
- *Random numbers.* They are each process's own; how long anything takes is not drawn from them. The event ids of deliveries count on.
"""

from tillgate.testing.simulation.exhaustion.exploration import Counts, explore
from tillgate.testing.simulation.exhaustion.stepping import Scope

__all__ = ["Counts", "Scope", "explore"]
