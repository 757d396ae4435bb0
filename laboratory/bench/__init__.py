"""What is measured beside what a user would pick instead: trials, peers, figures and goals."""
