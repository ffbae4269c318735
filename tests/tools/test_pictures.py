"""Pictures of pages: the right size, the right colours."""

import pytest
from PIL import Image

from tools.browser import CHROMIUM
from tools.pictures import main

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
PAGE = """<!doctype html><meta name="viewport" content="width=device-width">
<style>body { margin: 0; height: 3000px; background: #ff0000 }
@media (prefers-color-scheme: dark) { body { background: #0000ff } }</style>{}"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGE.replace("{}", ""))
    return path


def test_it_shows_the_page_as_it_is_asked_for(page, tmp_path):
    main(
        [str(page), str(tmp_path / "light.png"), "--width", "400", "--top", "9", "--height", "300"]
    )
    with Image.open(tmp_path / "light.png") as light:
        assert light.size == (400, 300)
        assert light.convert("RGB").getpixel((200, 150)) == (255, 0, 0)
    main([str(page), str(tmp_path / "dark.png"), "--dark"])
    with Image.open(tmp_path / "dark.png") as dark:
        assert dark.size == (1280, 3000)
        assert dark.convert("RGB").getpixel((200, 150)) == (0, 0, 255)


def test_a_page_that_is_not_there_or_complains_is_refused(page, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.html"), str(tmp_path / "p.png")])
    assert "there is no such file" in capsys.readouterr().err
    page.write_text(PAGE.replace("{}", "<script>console.error('broken')</script>"))
    with pytest.raises(SystemExit):
        main([str(page), str(tmp_path / "p.png")])
    assert "broken" in capsys.readouterr().err
    assert not (tmp_path / "p.png").exists()
