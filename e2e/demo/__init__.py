"""The demo: the main job of this project on a local real chain."""
