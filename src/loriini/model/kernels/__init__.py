"""Products under the experts. Only this package asks for a tensor's device, dtype or size to choose one.

Every fast product has a naive twin beside it, or is checked against plain `linear`.
"""
