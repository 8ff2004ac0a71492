"""Pages: for gateways, for shoppers and for staff."""
