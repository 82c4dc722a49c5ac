"""Studies of a platform and of a topology on it: what levels are worth, which configuration a load needs."""
