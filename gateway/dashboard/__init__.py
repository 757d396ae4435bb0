"""The dashboard: a live picture of the network in a browser, served by the gateway."""
