# One image for the web server and every worker; the command decides which it is.
FROM python:3.13-slim-trixie

WORKDIR /srv/poimen
COPY requirements requirements
# The build backend comes with its hash from the development lock, and leaves with this layer's end.
RUN pip install --no-cache-dir --require-hashes -r requirements/runtime.txt
COPY . .
RUN python -m venv /tmp/build \
    && /tmp/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
    && /tmp/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
    && pip install --no-cache-dir --no-deps /tmp/wheel/*.whl \
    && rm -rf /tmp/build /tmp/wheel

RUN useradd --system --create-home poimen
USER poimen
ENV PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
EXPOSE 8080
CMD ["gunicorn", "app.wsgi:app", "--bind", "0.0.0.0:8080", "--worker-class", "gthread", "--workers", "1", "--threads", "96", "--limit-request-line", "0", "--timeout", "60", "--graceful-timeout", "5", "--no-control-socket"]
