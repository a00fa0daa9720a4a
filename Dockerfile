# Builds the `orlog` binary and a minimal image without a shell and without root.
# To pin the base images, pass their digests: --build-arg BUILDER=rust:1.95-bookworm@sha256:…
ARG BUILDER=rust:1.95-bookworm
ARG RUNTIME=gcr.io/distroless/cc-debian12
FROM ${BUILDER} AS builder
# bindgen requires libclang for the headers of libmdbx. The base image contains the C compiler.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libclang-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN cargo build --release --locked -p orlog && mkdir /empty

# Contains the linked libraries (glibc and libgcc of the same Debian release) and CA certificates. Script effects require interpreters:
# copy the binary into an image that has them.
FROM ${RUNTIME}
COPY --from=builder /build/target/release/orlog /usr/local/bin/orlog
COPY --from=builder --chown=10001:10001 /empty /var/lib/orlog
COPY LICENSE /usr/share/doc/orlog/LICENSE
# Numeric, because Kubernetes cannot verify from a name that the user is not root.
USER 10001:10001
VOLUME /var/lib/orlog
EXPOSE 7070
# Requests require the token of the administrator, which the node creates in /var/lib/orlog/admin-token (docs/authentication.md).
ENV ORLOG_DATA_DIR=/var/lib/orlog ORLOG_LISTEN=0.0.0.0:7070 ORLOG_AUTH__MODE=token
# No HEALTHCHECK: it requires an HTTP client in the image, and Kubernetes ignores it. Probe /health and /ready from outside.
ENTRYPOINT ["/usr/local/bin/orlog"]
CMD ["run"]
