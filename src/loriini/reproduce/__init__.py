"""Every figure and table of the four papers as one command: trained, measured, drawn, and judged.

`items` maps an item of `loriini.published.ITEMS` to the claims of its finding and its charts; `job` trains
the runs that it needs at a scale, and writes results and a report. A verdict is computed from intervals over
seeds; no result contains prose written by hand.
"""
