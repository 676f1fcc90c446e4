"""For all tests."""

from hypothesis import HealthCheck, settings

# A busy machine is slow, and that is no failure: properties say what comes out, never how soon.
settings.register_profile("polarproxy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("polarproxy")
