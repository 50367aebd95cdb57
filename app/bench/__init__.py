"""`mem bench`: what the service costs, measured on a scratch stack beside the same work without it.

A composition root of its own: it runs the pipeline directly, and the whole service over HTTP.
"""

from workers.engines.threads import limit_blas_threads

limit_blas_threads()  # before anything below imports numpy
