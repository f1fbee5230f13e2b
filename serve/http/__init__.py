"""HTTP for every route: bodies, errors and their statuses, keys, clients that leave, headers, documentation."""
