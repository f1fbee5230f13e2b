"""From a request to its receipt: settings, the steps around a scorer, and the model that a server awaits."""
