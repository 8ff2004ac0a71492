"""What tests of the worker share with those of the operations."""

from tests.django.operations.conftest import gateway

__all__ = ["gateway"]
