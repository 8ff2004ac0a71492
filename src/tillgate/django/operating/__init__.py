"""Operating: the doctor, health and telemetry."""
