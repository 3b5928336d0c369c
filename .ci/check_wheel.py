"""Check that a wheel holds the whole package and nothing else.

Usage: check_wheel.py WHEEL, in the checkout it was built from.
"""

import subprocess
import sys
import zipfile

packed = {name for name in zipfile.ZipFile(sys.argv[1]).namelist() if ".dist-info/" not in name}
listing = subprocess.run(["git", "ls-files", "relpref"], check=True, capture_output=True, text=True)
tracked = set(listing.stdout.splitlines())

problems = [f"missing from the wheel: {name}" for name in sorted(tracked - packed)]
problems += [f"in the wheel, but not in git: {name}" for name in sorted(packed - tracked)]
problems += [
    f"no {what} in the wheel"
    for what in ("py.typed", ".csv")
    if not any(n.endswith(what) for n in packed)
]
if problems:
    sys.exit("\n".join(problems))
print(f"{len(packed)} files, each of them tracked, all under relpref/")
