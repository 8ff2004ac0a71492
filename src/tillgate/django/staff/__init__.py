"""What pages for staff share, in the admin and in a framework's own dashboard: words, masking, timelines and what became of a refund."""
