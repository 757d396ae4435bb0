"""A small arena, played by game servers over gamecast and over plain Pub/Sub, side by side."""
