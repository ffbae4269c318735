"""The commands for a trained model: predict and export."""

from pathlib import Path
from typing import Annotated

import typer

from annealtune.cli.completion import complete_run
from annealtune.cli.output import say
from annealtune.errors import ConfigError
from annealtune.training.storage import require_run

RunPath = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run directory.", autocompletion=complete_run),
]
Input = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="A picture or a folder of them, a .npy, or a .csv with one row a sample.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]

app = typer.Typer(rich_markup_mode=None)


@app.command()
def predict(
    run_path: RunPath,
    source: Input,
    out: Annotated[Path, typer.Option(metavar="FILE.csv", help="Where the predictions go.")] = Path(
        "predictions.csv"
    ),
    batch_size: Annotated[
        int, typer.Option(min=1, help="Samples that go through the model at once.")
    ] = 256,
    force: Force = False,
) -> None:
    """Predict new inputs with the best weights of a run: classes, numbers or tokens, as .csv."""
    require_run(run_path)
    if out.suffix.lower() != ".csv":
        raise ConfigError(f"--out {out}: must end in .csv")
    _check_free([out], force)
    from annealtune.training.prediction import predict as write_predictions

    count = write_predictions(run_path, source, out, batch_size=batch_size)
    say(f"{count} predictions: {out}")


@app.command()
def export(
    run_path: RunPath,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to.  [default: RUN/export]")
    ] = None,
    force: Force = False,
) -> None:
    """Write the best model of a run as torch.export program, safetensors and JSON."""
    require_run(run_path)
    directory = out or run_path / "export"
    from annealtune.training.trained import FILES
    from annealtune.training.trained import export as write_model

    _check_free([directory / name for name in FILES], force)
    for path in write_model(run_path, directory):
        say(path)


def _check_free(paths: list[Path], force: bool) -> None:
    found = [str(path) for path in paths if path.exists()]
    if found and not force:
        raise ConfigError(
            f"--out: must not overwrite {', '.join(found)}; take --force, or another --out"
        )
