"""The command that measures which experts text is routed to."""

import argparse

from loriini.cli.parser import (
    Add,
    check_models,
    device_option,
    document_fields,
    document_options,
    extension_option,
    model_argument,
    on_error,
    output_path,
)


def analyze_arguments(add: Add) -> None:
    """Arguments of `loriini analyze`."""
    model_argument(add)
    add("--documents", nargs="+", required=True, metavar="PATH", help="held-out text")
    document_options(add)
    add("--per-document", action="store_true", help="route each document by itself, cut to the context")
    most = "instances of each domain, or documents with --per-document, at most (all)"
    add("--instances", type=int, metavar="N", help=most)
    device_option(add)
    add(
        "--out",
        type=output_path,
        metavar="DIR",
        help="folder of routes.npz, routes.json and report.html (RUN; without a run it must be given)",
    )
    extension_option(add)


def analyze(arguments: argparse.Namespace) -> None:
    """Measure which experts each domain's text is routed to, and write a report."""
    check_models(arguments.model)
    from loriini.analyze.command import analyze_run
    from loriini.evaluate.runs import EvaluationSettings

    settings = EvaluationSettings(
        tuple(arguments.documents),
        document_fields(arguments),
        instances=arguments.instances,
        device=arguments.device,
        on_error=on_error(arguments),
    )
    print(analyze_run(arguments.model, settings, arguments.out, arguments.per_document))
