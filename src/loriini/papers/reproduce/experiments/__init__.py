"""How each item is reproduced: what is measured of its runs, the claims of its finding, and its charts.

`catalog` has the `Experiment` of every item. They are defined in the module of their paper; those that train
no language model are in `computed` and `toy`.
"""
