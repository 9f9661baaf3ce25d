"""An old name of ``rmm.pylibrmm.cuda_stream``, which the import of this module gives."""

import sys

from rmm._deprecated import warn_of_old_name
from rmm.pylibrmm import cuda_stream

warn_of_old_name(__name__, cuda_stream.__name__)
sys.modules[__name__] = cuda_stream
