"""What holds of every test here that draws its input: sizes from one place, no limit of time.

How long an example takes says how busy the machine is.
"""

from hypothesis import HealthCheck, settings

from tests.support.size import examples

settings.register_profile(
    "here",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("here")
