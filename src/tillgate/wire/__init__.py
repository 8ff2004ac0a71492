"""The wire format of the interface: bytes to values and back. No I/O, no clock, no settings."""
