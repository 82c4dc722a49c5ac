"""Detection of denial-of-service attacks (paper 002, section 5.1): a model in batch, alerts in a stream."""
