"""Dataset formats: each reads its files up front and gives clip records."""
