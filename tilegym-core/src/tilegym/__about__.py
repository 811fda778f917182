"""The one version of the repository; every distribution reads it."""

__version__ = "0.1.0"
