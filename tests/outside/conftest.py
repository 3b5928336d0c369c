import sys
from pathlib import Path

# The package that these tests plug in stands for an installed one.
sys.path.insert(0, str(Path(__file__).parent))
