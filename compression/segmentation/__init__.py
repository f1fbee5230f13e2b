"""Cuts a source into documents, paragraphs and units: the pieces that compression keeps or drops whole."""

from compression.segmentation.segment import segment
from compression.source.units import SegmentationSettings

__all__ = ["SegmentationSettings", "segment"]
