# One image for each service:
#     docker build --build-arg SERVICE=gateway -t tiltyard/gateway:0.1.0 .
# and the bus: docker build --target nats -t tiltyard/nats:0.1.0 .
# BASE_IMAGE is any Debian 12 with Python 3.11 and pip; NATS_IMAGE one that has /usr/local/bin/nats-server. What lies in
# infra/compose/local (wheels, runsc) is taken instead of being fetched, so that this also builds without a registry.
ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG NATS_IMAGE=nats:2.12-alpine
ARG SERVICE=cli

FROM ${NATS_IMAGE} AS nats-program

FROM ${BASE_IMAGE} AS base
RUN groupadd --gid 10001 tiltyard \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tiltyard
COPY --chmod=0755 infra/compose/ready.sh /usr/local/bin/ready
ENV PATH=/opt/tiltyard/bin:$PATH PIP_CACHE_DIR=/cache PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

FROM base AS nats
COPY --from=nats-program /usr/local/bin/nats-server /usr/local/bin/nats-server
COPY infra/nats/nats-server.conf /etc/nats/nats-server.conf
USER 10001:10001
CMD ["nats-server", "-c", "/etc/nats/nats-server.conf"]

# Our own code, as a wheel.
FROM base AS wheel
COPY pyproject.toml README.md /src/
COPY services /src/services
COPY proto /src/proto
RUN --mount=type=cache,target=/cache pip3 wheel --no-deps --wheel-dir /wheel /src

# What every service needs.
FROM base AS plain
RUN --mount=type=cache,target=/cache --mount=type=bind,source=infra/compose/local,target=/local \
    --mount=type=bind,source=infra/compose/install.py,target=/build/install.py \
    --mount=type=bind,source=infra/setup/constraints.txt,target=/build/constraints.txt \
    --mount=type=bind,source=pyproject.toml,target=/build/pyproject.toml \
    python3 -m venv --without-pip /opt/tiltyard && python3 /build/install.py dependencies secure tracing

# The two images that hold torch share this layer. TORCH_INDEX=https://pypi.org/simple brings the build for GPUs.
FROM plain AS torch
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=cache,target=/cache --mount=type=bind,source=infra/compose/local,target=/local \
    pip3 --python /opt/tiltyard/bin/python install --find-links /local --index-url "${TORCH_INDEX}" "${TORCH}" pip

# A few packages of the domains come as C sources only.
FROM base AS sources
RUN apt-get -qq update && apt-get -qq -y --no-install-recommends install gcc libc6-dev python3-dev > /dev/null
RUN --mount=type=cache,target=/cache \
    --mount=type=bind,source=infra/setup/constraints.txt,target=/build/constraints.txt \
    pip3 wheel --no-deps --wheel-dir /wheels --constraint /build/constraints.txt bfi fire pycosat zss

# What each service needs beyond that.
FROM plain AS for-sampler
FROM plain AS for-verifier
FROM plain AS for-gateway
RUN --mount=type=cache,target=/cache --mount=type=bind,source=infra/compose/local,target=/local \
    --mount=type=bind,source=infra/compose/install.py,target=/build/install.py \
    --mount=type=bind,source=infra/setup/constraints.txt,target=/build/constraints.txt \
    --mount=type=bind,source=pyproject.toml,target=/build/pyproject.toml \
    python3 /build/install.py gateway

FROM plain AS for-aggregator
RUN --mount=type=cache,target=/cache --mount=type=bind,source=infra/compose/local,target=/local \
    --mount=type=bind,source=infra/compose/install.py,target=/build/install.py \
    --mount=type=bind,source=infra/setup/constraints.txt,target=/build/constraints.txt \
    --mount=type=bind,source=pyproject.toml,target=/build/pyproject.toml \
    python3 /build/install.py aggregator

FROM for-aggregator AS for-cli
COPY --chmod=0755 infra/compose/prepare.sh /usr/local/bin/prepare

# runsc runs the sandboxes, iproute2 makes the network of those that may reach hosts, mmdebstrap their root file systems.
FROM plain AS for-sandbox
RUN apt-get -qq update && apt-get -qq -y --no-install-recommends install iproute2 mmdebstrap > /dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
ARG GVISOR_URL=https://storage.googleapis.com/gvisor/releases/release/latest
RUN --mount=type=bind,source=infra/compose/local,target=/local \
    --mount=type=bind,source=infra/compose/runsc.py,target=/build/runsc.py \
    python3 /build/runsc.py "${GVISOR_URL}" /usr/local/bin/runsc
RUN --mount=type=cache,target=/cache --mount=type=bind,source=infra/compose/local,target=/local \
    --mount=type=bind,source=infra/compose/install.py,target=/build/install.py \
    --mount=type=bind,source=infra/setup/constraints.txt,target=/build/constraints.txt \
    --mount=type=bind,source=pyproject.toml,target=/build/pyproject.toml \
    python3 /build/install.py sandbox

FROM torch AS for-trainer
RUN --mount=type=cache,target=/cache --mount=type=bind,source=infra/compose/local,target=/local \
    --mount=type=bind,source=infra/compose/install.py,target=/build/install.py \
    --mount=type=bind,source=infra/setup/constraints.txt,target=/build/constraints.txt \
    --mount=type=bind,source=pyproject.toml,target=/build/pyproject.toml \
    python3 /build/install.py trainer

# Also makes models and generates tasks, so that the libraries for that need no image of their own.
FROM torch AS for-engine
RUN --mount=type=cache,target=/cache --mount=type=bind,source=infra/compose/local,target=/local \
    --mount=type=bind,from=sources,source=/wheels,target=/wheels \
    --mount=type=bind,source=infra/compose/install.py,target=/build/install.py \
    --mount=type=bind,source=infra/setup/constraints.txt,target=/build/constraints.txt \
    --mount=type=bind,source=pyproject.toml,target=/build/pyproject.toml \
    python3 /build/install.py cli domains engine

FROM for-${SERVICE} AS service
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip3 --python /opt/tiltyard/bin/python install --no-cache-dir --no-deps --no-index /wheel/*.whl
USER 10001:10001
ENV HOME=/tmp PYTHONUNBUFFERED=1
CMD ["tiltyard", "--help"]
