"""Small-scope exhaustion: everything that can happen to one order, in every order in which it can
happen.

A shopper begins two payments and pays both at the payment page. Their notifications come in, and a
clerk refunds the money; a return may be added. One process may die and one fault may strike.
Wherever actors switch, the exploration tries every choice: the actor that continues, the actor that
dies there, and the fault that strikes calls and commits. When no actor has anything
more to do, the worker runs until the world is quiet; then the judge judges it like any simulated
world.

**States.** A state is a world and, for each actor, all that it has heard so far. A world comprises
the rows, the gateway's book, the messages sent to it, the judge's memory, and the time. An actor's
next act follows from the things it has heard, and from nothing else: clock, chance, database and
network belong to the scheduler. So an actor can return to a place without a fork: it starts again
and hears the same things again. Nothing that it sends or writes on the way goes anywhere.

**Steps.** In a step an actor acts until it pauses. A step depends on the things that the actor had
heard and on the *parts* of the world that it touches: the tables that its statements name, the
gateway's book, the time. The exploration plays a step once for each content of those parts; in
every other world with the same content it has the same outcome, and only the parts that it changed
are replaced. Where the parts hold something else, the exploration repeats the actor's words to
database and gateway without the actor: as long as all answers equal those heard in an earlier step,
the actor would go on as it did then (`scripts`).

**Steps that change nothing.** A step that changes no part of the world, begins no actor and uses up
no crash and no fault is invisible to all but its own actor: it listens, and then knows more.
Between two changes of the world every actor takes these steps or does not, independently of the
others. So the store holds no single state but all those that one history of changes leaves
possible: the world, and for each actor the *set* of places where it may stand. A change starts from
each of those places; equal changes from several of them are one, and lead to the set of places
where the actor may stand after it. The exploration still finds each world that can come about, each
change in it, and each end, in which all may stand where they have nothing more to do. It only does
not distinguish orders of invisible steps. Two states of one world that differ only in where one
actor may stand are joined.

**Faults.** The one fault is a gateway that cannot be reached, a lost request, a lost answer, or a
COMMIT at which the connection breaks, with everything committed or nothing. They differ in the
shop's knowledge and in the gateway's deeds. Each other fault would multiply the states, and is left
to the simulator: those that end like one of these, as a deadlock rolls back the same rows as a lost
COMMIT, and those of content rather than order, for example wrong amounts and forged notifications.

**Parts.** Where at most one crash and one fault may happen, each happens to one actor. The
exploration comes in parts, one for each pair of actors to which they may happen; together they hold
all of it.

**States in others.** A state is left out when another has the same world, lets at least as much
still happen, and lets every actor stand wherever it may stand here: everything that can follow
follows there too. Those in which most may still happen are explored first.

**Equal worlds.** Two worlds, or two places, that differ only in the following have the same future,
and count as one:

- *The process that is over.* A process of the shop leaves only its answer to its actor. All that it
  heard before is forgotten.
- *Columns that are loaded and never read.* A query for a model reads all its columns. A process
  does not receive those that it never reads, and reading one is an error: `unread` has them.
- *Instants.* Everything between two jumps of the clock happens within a fraction of a second. A
  moment that is compared with an offset (a throttle, a lease, a due poll) is whole seconds away, or
  only later actors compare it. So moments are kept to the second. Of two instants only the order
  can count, and only where one is the moment of a change that some code compares with the moment of
  a query to the gateway: *status_since* of a payment. So the clock advances with each change of a
  payment's status, and not otherwise.
  Within a transaction it is half a tick later than outside: a query before a change is earlier than
  the change. Where a row is changed only if it is as it was read, it is locked, read again and, if
  it differs, changed the same way. Code that asks for the time for another purpose gets the second
  (`_TO_THE_TICK`); a *status_since* to the second is an error.
- *The timeline.* No operation reads it. The judge and the audit read which events reported a
  status, in which order per payment and refund.
- *Stored notifications.* No row refers to one, and its slot plays no part before there are twenty.
- *Columns that are only shown*: those of `ONLY_SHOWN` in `rows`.
- *Random numbers.* They are each process's own, and the gateway's follow from its requests;
  durations are not drawn from them. The event ids of outbox events count on.
"""

from proving.simulation.exhaustion.exploration import Counts, explore
from proving.simulation.exhaustion.stepping import Scope

__all__ = ["Counts", "Scope", "explore"]
