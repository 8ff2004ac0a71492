"""What Oscar's dashboard shows of payments: on the order's page, and in the menu."""
