"""Make the corpus of `small` in a process that may be killed: OUT WORKERS TEXTS…

Workers import this module again, so it imports nothing by itself.
"""

if __name__ == "__main__":
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[2]))
    from data.prepare import small

    small.shrink()
    small.make(Path(sys.argv[1]), tuple(sys.argv[3:]), int(sys.argv[2]))
