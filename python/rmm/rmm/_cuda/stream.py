"""An old name of ``rmm.pylibrmm.stream``."""

import warnings

from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

__all__ = ["DEFAULT_STREAM", "LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM", "Stream"]

warnings.warn("rmm._cuda.stream is an old name: use rmm.pylibrmm.stream", FutureWarning, stacklevel=2)
