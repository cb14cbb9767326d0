"""Products under the experts, chosen by a tensor's device, dtype and size.

Every fast product has a naive twin beside it, or is checked against plain `linear`.
"""
