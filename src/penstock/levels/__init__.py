"""Multi-level elasticity (paper 002): what each level of container costs here, and what a load needs.

Pure values and their files: the platform's profile (slot, instance, host) and the configuration map of a
topology. Policies read them; `penstock study` and `penstock benchmark` write them.
"""

from penstock.levels.configuration import Configuration, ConfigurationMap, HostLayout
from penstock.levels.platform import Level, PlatformProfile, default_profile

__all__ = [
    "Configuration",
    "ConfigurationMap",
    "HostLayout",
    "Level",
    "PlatformProfile",
    "default_profile",
]
