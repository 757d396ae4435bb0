"""Recording of sessions: writers of the files of `analytics.session`, from inside a connection or from outside."""
