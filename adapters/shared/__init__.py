"""What many connections of one process share: reading and publishing, once for all of them."""
