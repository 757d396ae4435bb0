"""Where the sequencing nodes stand: topologies, and the choice of a host for each atom."""
