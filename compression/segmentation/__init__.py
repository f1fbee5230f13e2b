"""Cuts a source into documents, paragraphs and units: the pieces that compression keeps or drops whole."""

from compression.segmentation.builder import SegmentationSettings
from compression.segmentation.segment import segment

__all__ = ["SegmentationSettings", "segment"]
