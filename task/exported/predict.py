"""Predict with a model of this folder, by torch alone: python predict.py <site or model> <data> > predictions.csv."""

import csv
import json
import sys
from pathlib import Path

import torch
from preprocess import read_inputs

ABOUT = json.loads(Path(__file__).with_name("export.json").read_text(encoding="utf-8"))


def predict(which: str, x: torch.Tensor) -> torch.Tensor:
    """Return probabilities (n, classes), values in the target's unit (n, 1) or reconstruction errors (n, 1)."""
    total = torch.zeros(len(x), 1, dtype=torch.float64)
    for name, share in ABOUT["sites"].get(which, {which.removesuffix(".pt2"): 1.0}).items():
        model = torch.export.load(Path(__file__).with_name(f"{name}.pt2")).module()
        with torch.inference_mode():
            # One by one: in a batch, the last bits of a prediction depend on its other records.
            outputs = torch.cat([model(row[None].clone()).flatten(1) for row in x]).double()
        if ABOUT["task"] == "classification":
            outputs = outputs.softmax(dim=1)
        elif ABOUT["task"] == "regression":
            outputs = outputs * ABOUT["target_std"] + ABOUT["target_mean"]
        else:
            outputs = (outputs - x.flatten(1)).square().mean(dim=1, keepdim=True)
        total = total + share * outputs
    return total


def harmless(cell: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: an apostrophe goes before what begins like one."""
    text = str(cell)
    is_number = text.lstrip("+-").replace(".", "", 1).isdecimal()
    return f"'{text}" if isinstance(cell, str) and text[:1] in tuple("=+-@\t\r") and not is_number else cell


if __name__ == "__main__":
    # A site may have a model's name: the model is then called as its file.
    files = [f"{name}.pt2" for name in ABOUT["models"]]
    known = [*ABOUT["sites"], *(files if ABOUT["sites"].keys() & ABOUT["models"] else ABOUT["models"])]
    if len(sys.argv) != 3 or sys.argv[1] not in [*known, *ABOUT["models"], *files]:
        wrong = f"{sys.argv[1]}: there is no such site or model; " if len(sys.argv) == 3 else ""
        shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        sys.exit(f"{wrong}usage: python predict.py <site or model> <data>; there are {shown}")
    try:
        inputs, columns = read_inputs(sys.argv[2])
    except (OSError, ValueError) as error:
        sys.exit(f"{error}")
    except Exception as error:  # damaged files: zlib, csv, pickle and torch raise their own errors
        sys.exit(f"{sys.argv[2]} cannot be read ({type(error).__name__}: {error})")
    found, classes = predict(sys.argv[1], inputs), ABOUT["classes"]
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(map(harmless, ["sample", *columns, "prediction", *(f"p({name})" for name in classes)]))
    for row, values in enumerate(found.tolist()):
        best = classes[values.index(max(values))] if classes else values[0]
        beside = (cells[row] for cells in columns.values())
        table.writerow(map(harmless, [row + 1, *beside, best, *(values if classes else [])]))
