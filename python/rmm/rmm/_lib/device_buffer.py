"""An old name of ``rmm.pylibrmm.device_buffer``, which the import of this module gives."""

import sys

from rmm._deprecated import warn_of_old_name
from rmm.pylibrmm import device_buffer

warn_of_old_name(__name__, device_buffer.__name__)
sys.modules[__name__] = device_buffer
