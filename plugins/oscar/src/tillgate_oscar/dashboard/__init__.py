"""The part of Oscar's dashboard that shows payments: on the order's page, and in the menu."""
