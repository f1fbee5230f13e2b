"""Which calibration a model has."""

from pathlib import Path

from compression.calibration.calibration import Calibrated
from compression.pipeline.spec import ModelSpec
from compression.scorers.kinds import KINDS


def calibration_of(spec: ModelSpec) -> Calibrated | None:
    """The file that the spec names, or pith's own for the kind. Raises `BadCalibration`, `FileNotFoundError`.

    Pith's own was fitted with the kind's own blend: with another, scores mean something else.
    """
    if spec.calibration is not None:
        return Calibrated.load(spec.kind, Path(spec.calibration).expanduser())
    has_own_blend = spec.blend_used != KINDS[spec.kind].blend
    return None if has_own_blend else Calibrated.load(spec.kind)
