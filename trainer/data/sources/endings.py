"""Which files are clips, by their ending: what FFmpeg decodes, and what Pillow does."""

VIDEO_EXTENSIONS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v", ".gif")  # decoded by FFmpeg
MOVING_EXTENSIONS = (".webp",)  # pictures that are clips if they move, else still images
PICTURE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".apng", ".bmp", ".tif", ".tiff", *MOVING_EXTENSIONS)  # decoded by Pillow
CLIP_EXTENSIONS = (*VIDEO_EXTENSIONS, *MOVING_EXTENSIONS)  # clips where still images are not asked for
