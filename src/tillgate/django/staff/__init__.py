"""The common part of staff pages, in the admin and in a framework's own dashboard: words, masking, timelines, refund results."""
