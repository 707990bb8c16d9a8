# The SpecScope server: receiver, store, diagnosis, alerts, API and pages in one process.
#
#   docker build -t specscope .
#   docker run --rm -p 127.0.0.1:4318:4318 -v specscope:/var/lib/specscope -e SPECSCOPE_ALLOW_UNAUTHENTICATED=1 specscope
#
# Debian's own Python 3.11 is used on purpose: the base image and every system
# package get their security updates from one place.

FROM debian:bookworm-slim AS base

RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tzdata \
    && rm -rf /var/lib/apt/lists/*


FROM base AS build

RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

# The dependencies change far less often than the code, so they are a layer of their own.
WORKDIR /src
COPY pyproject.toml ./
COPY docker/dependencies.py docker/
RUN python3 -m venv /opt/specscope \
    && python3 docker/dependencies.py server postgres > /tmp/requirements.txt \
    && /opt/specscope/bin/pip install --requirement /tmp/requirements.txt

COPY LICENSE README.md ./
COPY tracer tracer
COPY backend backend
COPY frontend frontend
COPY migrations migrations
RUN /opt/specscope/bin/pip install --no-deps . \
    && /opt/specscope/bin/pip check \
    && /opt/specscope/bin/pip uninstall --yes pip setuptools


FROM base

LABEL org.opencontainers.image.title="SpecScope" \
      org.opencontainers.image.description="Shows why speculative decoding accepts draft tokens or does not." \
      org.opencontainers.image.licenses="Apache-2.0"

RUN groupadd --gid 10001 specscope \
    && useradd --uid 10001 --gid specscope --no-create-home --home-dir /var/lib/specscope --shell /usr/sbin/nologin specscope \
    && install -d -o specscope -g specscope -m 0750 /var/lib/specscope

COPY --from=build /opt/specscope /opt/specscope

# PYTHONDONTWRITEBYTECODE: the root file system is meant to be mounted read-only.
ENV PATH=/opt/specscope/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SPECSCOPE_DB=sqlite:////var/lib/specscope/specscope.db

USER specscope
WORKDIR /var/lib/specscope
VOLUME /var/lib/specscope
EXPOSE 4318 4317
STOPSIGNAL SIGTERM

# /healthz answers 200 once the database is migrated and reachable. Python is here already,
# curl is not; -I -S leave out what only slows its start.
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python3", "-I", "-S", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:4318/healthz', timeout=9)"]

ENTRYPOINT ["specscope"]
CMD ["serve", "--host", "0.0.0.0", "--port", "4318"]
