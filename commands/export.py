"""`florets export`: a finished run's models for use without Florets."""

from collections.abc import Sequence
from pathlib import Path

from florets.commands.given_keys import read_keys
from florets.reports.console import say
from florets.task.imported import import_from

HELP = """florets export run=<folder> to=<new folder> [onnx=true] [license=<identifier>] [trust=true]
  Write a finished run's models so that they can be used without Florets: for each model, those of single clients
  included, a torch.export program (.pt2) and its state dict (.safetensors); a model card (README.md) in Hugging
  Face's form; predict.py, which needs only torch and takes raw records where the run was on tables;
  preprocessing.json.

onnx=true also writes each model as ONNX (extra "onnx"). license= names a licence on the card, such as apache-2.0.
trust=true permits importing a model function of your own (task.model=package.module:function)."""

_KEYS = ("run", "to", "onnx", "license", "trust")


def main(arguments: Sequence[str]) -> int:
    """Export a run and return the exit code."""
    given = read_keys("export", arguments, _KEYS, ("run", "to"), ("onnx", "trust"))
    from florets.api.export import export

    import_from(Path.cwd())
    target = export(
        given["run"],
        given["to"],
        onnx=given.get("onnx") == "true",
        license=given.get("license", ""),
        trust=given.get("trust") == "true",
    )
    say(f"Models: {target}")
    return 0
