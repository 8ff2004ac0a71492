"""PayU for tests: a fake from PayU's public documentation, and the simulator that other people
wrote.
"""
