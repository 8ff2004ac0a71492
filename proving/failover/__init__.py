"""A failover: a shop on a PostgreSQL server that is killed, and on its asynchronous replica, which
lacks the last changes.
"""
