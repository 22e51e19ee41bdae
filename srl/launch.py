"""`python -m srl.launch experiment=NAME key=value ...` runs an experiment. In Python `srl.launch` is a function."""

import sys
from typing import Any, cast

if __name__ == "__main__":
    from srl.cli.launch import main

    sys.exit(main())
else:  # `import srl.launch` must not hide the function behind this module
    import srl

    cast(Any, sys.modules)[__name__] = srl.launch
