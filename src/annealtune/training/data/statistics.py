"""Mean and deviation of pixels."""

import numpy as np
from numpy.typing import NDArray


def channel_statistics(
    images: NDArray[np.uint8],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel, pixels divided by 255.

    Args:
        images: Of shape (images, channels, height, width).

    Example:
        >>> channel_statistics(np.array([[[[0, 255]]]], dtype=np.uint8))
        ((0.5,), (0.5,))
    """
    counts = [np.bincount(images[:, c].ravel(), minlength=256) for c in range(images.shape[1])]
    values = np.arange(256) / 255
    mean = [float(np.average(values, weights=count)) for count in counts]
    variance = [
        float(np.average((values - center) ** 2, weights=count))
        for center, count in zip(mean, counts, strict=True)
    ]
    # A channel without any contrast is only centered.
    return tuple(mean), tuple(v**0.5 if v > 0 else 1.0 for v in variance)
