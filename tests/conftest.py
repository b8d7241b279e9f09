"""What all tests share: hypothesis without a stopwatch, since a first call may have to compile a kernel."""

from hypothesis import HealthCheck, settings

settings.register_profile("microsim", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("microsim")
