"""The serializers that the shop changes."""
