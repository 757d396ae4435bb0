"""Recording of sessions: what writes the files of `analytics.session`, from inside a connection or from outside."""
