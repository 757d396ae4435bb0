"""What an analysis shows: one page, pictures, tables."""
