"""The outbox: events that the shop hears of, in order per order."""
