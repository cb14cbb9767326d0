"""Documents from inputs of many formats. Reading is a stream: memory does not grow with the input.

Every error names its place in the input, and every document that is left out is reported.
"""
