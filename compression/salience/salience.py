"""The result type: what is known of each unit before any query."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Salience:
    """One value a unit in every array.

    `noise`: rules, bare markers, progress, passed tests, heartbeats: nothing that should displace content.
    `level`: 0..1, how severe the unit says it is: debug 0.15, info 0.3, a warning 0.6, an error 0.85, fatal 1; 0 where
    it says nothing. `is_log`: a line of a log, or a JSON object that is one.
    `template`: units that say the same but for numbers, ids, paths and names have the same number, -1 where none was
    looked for; `template_size` units have it (0 without one), `is_first` and `is_last` are its ends in the source.
    `changes_state`: a line that is rare among many alike, more severe than those before it, or reports a start, an end,
    a failure or a transition. `copy_of`: the first unit with the same text but for white space and quotation marks
    (`>`), itself where there is none before it; `repeats`: there is one. `letters`: how many letters and digits it has.
    """

    noise: Bools
    level: Floats
    is_log: Bools
    template: Ints
    template_size: Ints
    is_first: Bools
    is_last: Bools
    changes_state: Bools
    copy_of: Ints
    letters: Ints

    @property
    def repeats(self) -> Bools:
        return np.asarray(self.copy_of != np.arange(len(self.copy_of)))

    @property
    def is_plain(self) -> bool:
        """True where nothing in the text is noise, one of many alike, or there twice."""
        return not (self.noise.any() or self.repeats.any() or (self.template_size > 1).any())
