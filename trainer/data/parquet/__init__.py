"""FastVideo's Parquet: encoded clips and texts as rows, written, read and trained from."""
