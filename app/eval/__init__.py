"""`mem eval`: how well the service finds what was judged right, on a scratch stack.

A composition root of its own: it runs the pipeline directly, with the settings of the service.
"""

from workers.engines.threads import limit_blas_threads

limit_blas_threads()  # before anything below imports numpy
