"""What all tests share: hypothesis without a clock, so that a busy machine fails nothing."""

from hypothesis import settings

settings.register_profile("calm", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("calm")
