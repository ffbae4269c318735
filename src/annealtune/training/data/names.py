"""The data sets that have a name. Known without importing torch."""

from annealtune.training.lookup import is_factory, unknown

DATASETS = {
    "digits": "1,797 grey 8x8 digits, embedded in scikit-learn: no download",
    "fashion-mnist": "70,000 grey 28x28 articles of clothing",
    "cifar10": "60,000 colour 32x32 photographs",
    "image-folder": "your own pictures: DIR/train/CLASS/*.png and DIR/test/CLASS/*.png",
}


def check(name: str) -> str:
    """Return the name if it is a data set's or has the form ``package.module:factory``.

    Raises:
        ConfigError: Otherwise, with the nearest name.

    Example:
        >>> check("digits")
        'digits'
    """
    if name not in DATASETS and not is_factory(name):
        raise unknown("data", name, DATASETS)
    return name
