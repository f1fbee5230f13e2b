"""Runs code of docs/recipes/README.md, block after block in one namespace, and prints what each printed as JSON."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout

given = json.load(sys.stdin)
code = given.pop("code")
names = {**given, "url": os.environ["PITH_URL"], "key": os.environ["PITH_KEY"]}
printed = []
for block in code:
    output = io.StringIO()
    with redirect_stdout(output):
        exec(block, names)
    printed.append(output.getvalue())
print(json.dumps(printed))
