"""What tries, measures and shows the system; no game server imports it."""
