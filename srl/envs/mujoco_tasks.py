"""tasks"""

TASKS: dict[str, object] = {}
