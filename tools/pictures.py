"""Take a picture of a page: `python -m tools.pictures PAGE PICTURE.png [--height 800]`."""

import argparse
from pathlib import Path

from tools.browser import Browser


def main(arguments: list[str] | None = None) -> None:
    """Open the page in a headless Chromium and write what a reader sees first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=None, help="by default the whole page")
    parser.add_argument("--top", type=int, default=0, help="where the picture begins")
    parser.add_argument("--dark", action="store_true", help="for readers who prefer dark pages")
    given = parser.parse_args(arguments)
    if not given.page.is_file():
        parser.error(f"{given.page}: must be a page on disk; there is no such file")
    with Browser() as browser:
        browser.open(given.page, given.width, "dark" if given.dark else "light")
        if browser.errors:
            parser.error(f"{given.page}: the page must have no errors, got {browser.errors[0]}")
        browser.screenshot(given.picture, given.height, given.top)
    print(given.picture)


if __name__ == "__main__":
    main()
