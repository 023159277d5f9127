"""The small Wan model that ships with Video Trainer, the world it draws, and the script that made it."""
