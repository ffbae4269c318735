"""The help: all commands; flags in groups; the options of the chosen method."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from annealtune.training.config import DEFAULT_METHOD, from_values, read_toml

_ARGUMENTS = "annealtune.arguments"
_KEY = "--method"
_WHOLE = 1000
_UNBROKEN = "\N{NON-BREAKING HYPHEN}"


class FullGroup(TyperGroup):
    """All commands, each with the whole line about it."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write them, in the order in which they are listed."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(limit=_WHOLE))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        _write_section(formatter, "Commands", rows)


class GroupedCommand(TyperCommand):
    """A command whose options stand in the groups that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write each group under its own heading, in the order in which they begin."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None)
                title = "Arguments" if is_argument else panel or "Options"
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            _write_section(formatter, title, records)


class MethodCommand(GroupedCommand):
    """A command that trains by one method, and explains the options of that one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the words: --help is carried out before --method is read."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the options of the method that is chosen, with the values that they would have."""
        method, options = _chosen(ctx.meta.get(_ARGUMENTS, []))
        title = f"Options of {method}, by --set {method}.KEY=VALUE or in the file"
        fields = type(options).model_fields.items()
        _write_section(
            formatter,
            title,
            [(key, _explain(field, getattr(options, key))) for key, field in fields],
        )
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"--help {_KEY} NAME shows the options of another method.")


def _write_section(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    """Write a heading and rows below it; names with hyphens are not broken at the end of a line."""
    written = len(formatter.buffer)
    with formatter.section(title):
        formatter.write_dl([(name, text.replace("-", _UNBROKEN)) for name, text in rows])
    formatter.buffer[written:] = [
        text.replace(_UNBROKEN, "-") for text in formatter.buffer[written:]
    ]


def _explain(field: FieldInfo, value: Any) -> str:
    kinds = [
        field.annotation,
        *get_args(field.annotation),
    ]  # the second for those that may be unset
    choices = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    text = f"{field.description} ({', '.join(choices)})" if choices else str(field.description)
    return text if value is None else f"{text}  [default: {_short(value)}]"


def _chosen(words: list[str]) -> tuple[str, Any]:
    """Return the method that the words of a command choose, and its options.

    Raises:
        ConfigError: if it is not a method, or the file is not one of a run.
    """
    values: dict[str, Any] = {"method": DEFAULT_METHOD}
    source = "flags"
    for word in words:
        if word.endswith(".toml") and Path(word).is_file():
            values |= read_toml(Path(word))
            source = word
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == _KEY:
            values["method"] = after
        elif word.startswith(f"{_KEY}="):
            values["method"] = word.removeprefix(f"{_KEY}=")
    config = from_values(values, source)
    return config.method, config.options


def _short(value: Any) -> str:
    """Return a value as it would be written in a file, long lists cut.

    Example:
        >>> _short((0.9, 0.8, 0.7, 0.6, 0.5)), _short(True)
        ('0.9 ... 0.5', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        shown = [_short(each) for each in value]
        return f"{shown[0]} ... {shown[-1]}" if len(shown) > 4 else ", ".join(shown)
    return str(value)
