# One image for the web server and every worker; the command decides which it is.
FROM python:3.13-slim-trixie

WORKDIR /srv/poimen
COPY requirements/runtime.txt requirements/runtime.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/runtime.txt
COPY . .
RUN pip install --no-cache-dir --no-deps hatchling==1.31.0 editables && pip install --no-cache-dir --no-deps .

RUN useradd --system --create-home poimen
USER poimen
ENV PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
EXPOSE 8080
CMD ["gunicorn", "app.wsgi:app", "--bind", "0.0.0.0:8080", "--worker-class", "gthread", "--threads", "32"]
