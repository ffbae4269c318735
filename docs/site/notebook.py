"""A hook of the docs site: the tutorial notebook as a page.

Its cells become Markdown and code blocks; what a cell has printed or drawn follows it. The notebook
itself is published beside the page, to be downloaded.
"""

import json
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

NOTEBOOK, PAGE = "tutorial.ipynb", "tutorial.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page that is made of the notebook."""
    notebook = files.get_file_from_path(NOTEBOOK)
    if notebook is None:
        raise FileNotFoundError(f"docs/{NOTEBOOK} is missing: the page {PAGE} is made of it")
    files.append(File.generated(config, PAGE, content=as_markdown(notebook.content_string)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links to the notebook lead to its page, but for the one that downloads it."""
    return markdown if page.file.src_uri == PAGE else markdown.replace(NOTEBOOK, PAGE)


def as_markdown(notebook: str) -> str:
    """Return the cells of a notebook as the Markdown of a page."""
    parts = [part for cell in json.loads(notebook)["cells"] for part in parts_of(cell)]
    title, *rest = parts
    download = (
        f"*This page is a notebook: [download it]({NOTEBOOK}). The tests run it from its first "
        "cell to its last.*"
    )
    return "\n\n".join([title, download, *rest]) + "\n"


def parts_of(cell: dict[str, Any]) -> list[str]:
    """Return a cell, and what it has printed, as Markdown."""
    text = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return [text]
    return [f"```python\n{text}\n```", *map(shown, cell["outputs"])]


def shown(output: dict[str, Any]) -> str:
    """Return one output as Markdown: text that was printed."""
    if output["output_type"] != "stream":
        raise ValueError(f"docs/{NOTEBOOK} must have printed text as its only outputs")
    printed = "".join(output["text"]).rstrip()
    return f"```{{ .text .printed }}\n{printed}\n```"
