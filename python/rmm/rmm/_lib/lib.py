"""An old name of ``rmm.pylibrmm``, which the import of this module gives."""

import sys

from rmm import pylibrmm
from rmm._deprecated import warn_of_old_name

warn_of_old_name(__name__, pylibrmm.__name__)
sys.modules[__name__] = pylibrmm
