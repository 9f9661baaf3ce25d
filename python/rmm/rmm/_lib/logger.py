"""An old name of ``rmm.pylibrmm.logger``, which the import of this module gives."""

import sys

from rmm._deprecated import warn_of_old_name
from rmm.pylibrmm import logger

warn_of_old_name(__name__, logger.__name__)
sys.modules[__name__] = logger
