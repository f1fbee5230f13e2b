"""What a calibration says of one compression."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Calibration:
    """What an estimate rests on: `sha256` is the hash of its file, in hexadecimal."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """How probable it is that the output holds the evidence, if the source does and is like what was calibrated on.

    `probability` is None where nothing was scored or asked. Below the probabilities of `at_risk` the flag is critical,
    a warning, or for information. `outside` says what of the request is not like the calibration: any of `query`,
    `kind`, `script`, `length`.
    """

    probability: float | None
    at_risk: tuple[float, float, float] = (0.0, 0.0, 0.0)
    outside: tuple[str, ...] = ()


NO_ESTIMATE = Estimate(None)
