"""Put load on a running network, and check the deliveries of its subscribers."""
