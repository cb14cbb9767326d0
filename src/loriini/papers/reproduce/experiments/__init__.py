"""How each item is reproduced: what is measured of its runs, the claims of its finding, and its charts.

`catalog` has all of them by item. An `Experiment` is a value in the module of its paper; those without a
training of a language model are in `computed` and `toy`.
"""
