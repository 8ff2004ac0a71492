"""Reviews: cases for staff, and the actions that resolve them."""
