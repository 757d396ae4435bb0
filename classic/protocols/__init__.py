"""The classic ordering protocols, one file each: what is proven in its docstring, and declared in its class."""
