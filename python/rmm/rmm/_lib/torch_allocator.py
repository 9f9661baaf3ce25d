"""An old name of ``rmm.librmm._torch_allocator``: programs gave PyTorch this module's ``__file__``."""

import os

from rmm import librmm
from rmm._deprecated import warn_of_old_name

warn_of_old_name(__name__, "rmm.allocators.torch")
__file__ = os.path.join(os.path.dirname(librmm.__file__), "_torch_allocator.so")
