"""A stand-in for what looks into a film; a real one asks ffprobe."""


def inspect(source):
    return {"frames": 250, "source": source}
