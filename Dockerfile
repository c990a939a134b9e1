# One image for all three processes; the command says which: python -m webhook, python -m
# trainer_kai.podgrouper, python -m scheduler. Build it in the root of the checkout.
# A tag moves: `make image-release` takes a base by its digest alone.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS libraries
COPY requirements.lock .
# Wheels alone: what is built from source runs code of others that no hash here covers.
RUN python -m venv /venv && \
    /venv/bin/pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes -r requirements.lock

FROM ${BASE_IMAGE}
COPY --from=libraries /venv /venv
COPY trainer_kai /app/trainer_kai
COPY webhook /app/webhook
COPY scheduler /app/scheduler
RUN /venv/bin/python -m compileall -q /app
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
USER 65532:65532
