"""The only place that touches ComfyUI services: its folders, models, memory, interrupt, events and routes."""
