"""Pictures of items: only what browsers show without running it."""

import os
from pathlib import Path

# SVG is missing on purpose: it may carry scripts.
TYPES = {
    ".avif": "image/avif",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}


def is_picture(file: Path) -> bool:
    """Whether a file may be sent as a picture. That it lies in the folder of the items is seen to where these are read."""
    return file.suffix.lower() in TYPES and os.path.isfile(file)
