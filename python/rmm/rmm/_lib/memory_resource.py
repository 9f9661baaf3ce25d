"""An old name of ``rmm.pylibrmm.memory_resource``, which the import of this module gives."""

import sys

from rmm._deprecated import warn_of_old_name
from rmm.pylibrmm import memory_resource

warn_of_old_name(__name__, memory_resource.__name__)
sys.modules[__name__] = memory_resource
