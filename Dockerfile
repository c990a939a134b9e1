# One image for all processes; the command says which: python -m webhook, python -m
# trainer_kai.podgrouper, python -m scheduler; python -m scheduler.agent in reservation pods. Build it in the root of the checkout.
# A tag moves: `make image-release` takes a base by its digest alone.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS packages
WORKDIR /build
COPY requirements-build.lock requirements-image.lock ./
# Only wheels are installed: building a package from source runs code that no hash in this file covers.
# pip and the build tools are in a separate environment, so that /venv does not contain them.
RUN python -m venv tools && python -m venv --without-pip /venv && \
    tools/bin/pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes \
      -r requirements-build.lock && \
    tools/bin/pip --python /venv/bin/python install --no-cache-dir --no-deps --only-binary=:all: \
      --require-hashes -r requirements-image.lock && \
    find /venv -depth -type d -name tests -exec rm -r {} +
COPY LICENSE README.md pyproject.toml ./
COPY trainer_kai trainer_kai
COPY webhook webhook
COPY scheduler scheduler
RUN tools/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir wheel . && \
    tools/bin/pip --python /venv/bin/python install --no-index --no-deps wheel/*.whl

FROM ${BASE_IMAGE}
# The packages of the base image (pip, setuptools) are not used.
RUN rm -rf /usr/local/lib/python3.*/site-packages /usr/local/lib/python3.*/ensurepip /usr/local/bin/pip*
COPY --from=packages /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
USER 65532:65532
