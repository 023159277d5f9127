"""HunyuanVideo."""
