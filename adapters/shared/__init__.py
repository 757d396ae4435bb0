"""Reading and publishing for many connections of one process: once for all of them."""
