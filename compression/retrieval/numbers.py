"""Rows of numbers as they leave a process."""

from compression.features.embeddings import Floats, normalised
from compression.pipeline.errors import RefusedRequest


def shortened(vectors: Floats, dimensions: int | None) -> Floats:
    """The first `dimensions` of each vector, again of length one. Raises a `CompressionError` where there are fewer."""
    width = vectors.shape[1]
    if dimensions is None or dimensions == width:
        return vectors
    if dimensions > width:
        raise RefusedRequest("dimensions", f"must be at most {width}, not {dimensions}")
    return normalised(vectors[:, :dimensions])


def little_endian(values: Floats) -> bytes:
    return values.astype("<f4").tobytes()
