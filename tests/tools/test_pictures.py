"""Pictures of pages: the right size, the right colours."""

import pytest
from PIL import Image

from tools.browser import CHROMIUM
from tools.pictures import main

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
PAGE = """<!doctype html><meta name="viewport" content="width=device-width">
<style>body { margin: 0; height: 3000px; background: #ff0000 }
@media (prefers-color-scheme: dark) { body { background: #0000ff } }</style>{}"""


def test_it_shows_the_page_as_it_is_asked_for(tmp_path):
    page, light, dark = (tmp_path / name for name in ("page.html", "light.png", "dark.png"))
    page.write_text(PAGE.replace("{}", ""))
    main([str(page), str(light), "--width", "400", "--top", "9", "--height", "300"])
    main([str(page), str(dark), "--dark"])
    shown = ((light, (400, 300), (255, 0, 0)), (dark, (1280, 3000), (0, 0, 255)))
    for path, size, colour in shown:
        with Image.open(path) as picture:
            assert picture.size == size
            assert picture.convert("RGB").getpixel((200, 150)) == colour


def test_a_page_that_is_not_there_or_complains_is_refused(tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text(PAGE.replace("{}", "<script>console.error('broken')</script>"))
    for path, named in ((tmp_path / "none.html", "none.html"), (page, "broken")):
        with pytest.raises(SystemExit):
            main([str(path), str(tmp_path / "p.png")])
        assert named in capsys.readouterr().err
    assert not (tmp_path / "p.png").exists()
