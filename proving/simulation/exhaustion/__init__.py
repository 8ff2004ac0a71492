"""Small-scope exhaustion: everything that can happen to one order, in every order in which it can
happen.

A shopper begins two payments, both are paid at the payment page, their notifications come in, and a
clerk gives the money back; a return and a worker run may be added. One process may die and one
fault may strike. Wherever actors switch, every choice is tried: who goes on next, who dies there,
and at calls and commits which fault strikes. What is left when nobody acts any more is swept until
it is quiet, and judged as in any simulated world.

**States.** A state is a world and, of each actor, all that it has heard so far. A world comprises
the rows, the gateway's book, what was sent to it, what the judge remembers, and the time. What an
actor does next follows from what it has heard, and from nothing else: clock, chance, database and
network are the scheduler's. So an actor can be brought to where it stood without forking anything:
it begins anew, and is told again what it heard. Nothing that it then sends or writes goes anywhere.

**Steps.** A step is what an actor does until it pauses. It depends on what the actor had heard and
on the *parts* of the world that it touches: the tables that its statements name, the gateway's
book, the time. A step is played once for each content of those parts; in every other world that has
the same content in them it comes to the same, and only the parts that it changed are put in their
places. Where they have another content, what the actor said to database and gateway in such a step
is said once more without it: as long as all answers are those that it has heard in one of them, it
would go on as it did then (`scripts`).

**Steps that change nothing.** A step that changes no part of the world, begins nobody and uses up
no crash and no fault is seen by nobody but the actor that takes it: it listens, and goes on knowing
more. Between two changes of the world every actor takes such steps, or does not, whatever the
others do. So what is stored is no state alone but all those that one history of changes leaves
possible: the world, and of each actor the *set* of places where it may stand by then. A change is
made from each of those places; those that change the same from several of them are one, and lead to
the set of places where the actor may stand after it. Each world that can come about, each change in
it, and each end, in which all may stand where they have nothing more to do, is found all the same;
only the order of steps that nobody could have seen is not told apart. Two such states of one world
that differ in where one actor may stand, and in nothing else, are joined.

**Faults.** The one fault is a gateway that cannot be reached, a request that is lost, an answer
that is lost, or a COMMIT at which the connection breaks, with everything committed or nothing. They
differ in what the shop knows and in what the gateway has done. Each other fault would multiply the
states, and is left to the simulator: those that end like one of these, as a deadlock rolls back
what a lost COMMIT rolls back, and those that lie in what is said and not in what happens when, such
as wrong amounts and forged notifications.

**Parts.** Where one crash and one fault at most may happen, they happen to somebody. The
exploration comes in parts by who that may be, for each pair of those who can; together they hold
all of it.

**States in others.** A state is left out when another has the same world, lets at least as much
still happen, and lets every actor stand wherever it may stand here: everything that can follow
follows there too. Those in which most may still happen are explored first.

**What makes no difference.** Two worlds, or two places, that differ in nothing but what follows
here have the same future, and are taken for one:

- *The process that is over.* All that a process of the shop leaves to its actor is its answer. What
  it heard before is forgotten.
- *What is loaded and never looked at.* A query for a model reads all its columns. Those that a
  process never looks at are kept from it, and looking at one is an error: `unread` has them.
- *Instants.* All that happens between two jumps of the clock happens within a fraction of a second,
  while whatever is compared with an offset (a throttle, a lease, a look that is due) is whole
  seconds away, or is looked for by whoever comes later. So moments are kept to the second. Of two
  instants only the order can matter, and only where one is the moment of a change that somebody
  compares with the one at which the gateway was asked: *status_since* of a payment and, for a
  worker, *opened_at*. So the clock advances with each such change (of a payment's status, a
  review), and not otherwise. Within a transaction it is half a tick later than outside: whoever
  asked before a change asked earlier. A row that is only changed if it is as it was read is locked,
  read again and changed the same way if it is not. Who asks for the time for another purpose is
  told the second (`_TO_THE_TICK`); a *status_since* to the second is an error.
- *The timeline.* No operation reads it. The judge and the audit read which events told a status, in
  which order per payment and refund.
- *Notifications that were kept.* Nobody refers to one, and which slot it has plays no part before
  there are twenty.
- *What is only shown*: the columns of `ONLY_SHOWN` in `rows`.
- *Random numbers.* They are each process's own, and the gateway's follow from what it was asked
  for; how long anything takes is not drawn from them. The event ids of outbox events count on.
"""

from proving.simulation.exhaustion.exploration import Counts, explore
from proving.simulation.exhaustion.stepping import Scope

__all__ = ["Counts", "Scope", "explore"]
