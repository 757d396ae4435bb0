"""The presentation of an analysis: one page, pictures, tables."""
