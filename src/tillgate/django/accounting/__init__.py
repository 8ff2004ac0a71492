"""Accounting: it reads rows and compares them; nothing but pages and commands imports it."""
