"""Why an application of Ray Serve cannot start, out of what Ray says of it."""

import re
from typing import Any

# How a line begins that names an exception; those of its traceback are indented.
EXCEPTION = re.compile(r"(\w+\.[\w.]+|\w*(Error|Exception)): ")


def reason_of(application: Any) -> str:
    """What went wrong, on one line: of a deployment's traceback the exception that ends it."""
    said = [application.message.splitlines()]
    for deployment in application.deployments.values():
        lines = deployment.message.splitlines()
        ends = [number for number, line in enumerate(lines) if EXCEPTION.match(line)]
        said.append(lines[ends[-1] :] if ends else lines)
    return " ".join(" ".join(each.split()) for lines in said for each in lines)[:2000]
