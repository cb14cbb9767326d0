"""Every figure and table of the four papers as one command: trained, measured, drawn, and judged.

From the command line (`settings`) to a report:

1. `experiments.catalog` maps an item of `loriini.papers.published.ITEMS` to its `Experiment`.
2. `plan` makes its runs small (`scales`), gives them text (`texts`) and places them in folders.
3. `job` trains them, measures them (`measures`) and writes each item as it is done.
4. `results` turns the measurements into claims (`claim`), charts and a verdict, as one JSON object.
5. `report` makes pages of it.

A verdict is computed from intervals over seeds; no result contains prose written by hand.
"""
