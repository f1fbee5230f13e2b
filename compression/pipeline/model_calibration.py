"""Which calibration a model has."""

from pathlib import Path

from compression.calibration.calibration import Calibrated
from compression.pipeline.spec import ModelSpec
from compression.scorers.kinds import KINDS

# Of tools' results in JSON, which are compressed for an agent, the kind's entry in the file has this at its end.
OF_RECORDS = " results"


def calibration_of_records(spec: ModelSpec) -> Calibrated | None:
    """Pith's own for tools' results in JSON, whatever file the spec names: `pith tune` fits none. Raises as below."""
    return Calibrated.load(spec.kind + OF_RECORDS) if spec.blend_used == KINDS[spec.kind].blend else None


def calibration_of(spec: ModelSpec) -> Calibrated | None:
    """The file that the spec names, or pith's own for the kind. Raises `BadCalibration`, `FileNotFoundError`.

    Pith's own was fitted with the kind's own blend: with another, scores mean something else.
    """
    if spec.calibration is not None:
        return Calibrated.load(spec.kind, Path(spec.calibration).expanduser())
    has_own_blend = spec.blend_used != KINDS[spec.kind].blend
    return None if has_own_blend else Calibrated.load(spec.kind)
