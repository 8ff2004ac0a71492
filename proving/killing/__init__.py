"""Kill at every line: a process dies by SIGKILL at each line of its work, and afterwards no money
is lost, doubled or unseen.

Every line of Tillgate, and every 50th of all other packages, is a point at which a forked child
dies in the middle of an act: a start, a notification, a refund's notification, a return, a
reconcile, a refund, an outbox event or a worker run. Then the others act as usual (the gateway
repeats its notification, the shopper presses again, the worker runs), a day passes, and gateway,
Tillgate and shop must agree to the cent::

    DJANGO_SETTINGS_MODULE=tests.settings python -m proving.killing --driver tests.driver:BookshopDriver

The emulator runs in the parent and remembers the dead child's calls. An interrupted run continues
at its last point.
"""
