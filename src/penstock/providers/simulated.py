"""The provider `simulated`, for whoever wants simulated hosts without the simulated plane."""

from __future__ import annotations

import numpy as np

from penstock.providers.surroundings import Surroundings
from penstock.simulator.provider import SimulatedParameters, SimulatedProvider
from penstock.topology.model import Site


def make(site: Site, parameters: SimulatedParameters, surroundings: Surroundings) -> SimulatedProvider:
    """The provider of a site."""
    return SimulatedProvider(site, parameters, np.random.default_rng(surroundings.seed))
