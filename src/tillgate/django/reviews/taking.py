"""A review can be taken by one of the staff, so that colleagues do not work on it too."""

from __future__ import annotations

from tillgate.django.models import Review
from tillgate.errors import InvalidRequest


def take(review_id: int, staff: str, *, taken_by: str = "") -> Review:
    """Give a review to one of the staff, and return it; without `staff` it has no clerk again. All
    staff can still resolve it. `taken_by` is the clerk that the form shows. Raises `InvalidRequest`
    where another has it by now, or it is resolved.
    """
    rows = Review.objects.filter(pk=review_id, resolved_at__isnull=True, taken_by=taken_by)
    changed = rows.update(taken_by=staff[:150])
    review = Review.objects.get(pk=review_id)
    if review.resolved_at:
        raise InvalidRequest("review", review.pk, f"was resolved by {review.resolved_by}")
    if not changed and review.taken_by != staff:
        has_it = review.taken_by or "nobody"
        raise InvalidRequest("review", review.pk, f"is another's by now: {has_it} has it")
    return review
