"""Context compression. Python 3.14 has a standard package of this name, so the clash is refused here, not in `gzip`."""

import sys

if sys.version_info >= (3, 14):
    raise ImportError(
        "pith's package `compression` hides Python 3.14's standard package of that name, which gzip, bz2 and lzma "
        "import. Use Python 3.11 or 3.12."
    )
