"""A process that imports frameworks makes half a million objects that stay; this looks at them less often."""

import atexit
import gc
import os

# At its end Python would go through all of them, which takes a second. What is registered first is called last.
atexit.register(gc.freeze)

# While they are made as well. Where memory runs out for real, garbage is collected as in the process of a user.
if "TF_CPU_BFC_MEM_LIMIT_IN_MB" not in os.environ:
    gc.set_threshold(10_000, 10, 10)
