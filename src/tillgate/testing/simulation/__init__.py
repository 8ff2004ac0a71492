"""The simulator: seeded worlds in which shoppers pay while everything goes wrong, and a judge who looks on after every step.

The operations are the real ones, on a real database; time, chance and the network are virtual, so that a seed always plays the same world.
`world.simulate` plays one; `python -m tillgate.testing.simulation` plays many.
"""
