# Builds the `orlog` binary and puts it alone into a small image, without a shell and without root.
FROM rust:1.95-bookworm AS builder
# bindgen reads the headers of libmdbx through libclang; the C compiler is there.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libclang-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
# The line tables stay, so that a backtrace names its lines, but compressed: they are most of the file.
RUN cargo build --release --locked -p orlog \
    && objcopy --compress-debug-sections=zlib target/release/orlog /orlog \
    && mkdir /empty

# What the binary links (glibc and libgcc, of the Debian that it was built on) and the certificates that TLS needs. Effects that are
# scripts need their interpreters too: copy the binary into an image that has them.
FROM gcr.io/distroless/cc-debian12
COPY --from=builder /orlog /usr/local/bin/orlog
COPY --from=builder --chown=10001:10001 /empty /var/lib/orlog
COPY LICENSE /usr/share/doc/orlog/LICENSE
# A number, because Kubernetes cannot tell from a name that it is not root's.
USER 10001:10001
VOLUME /var/lib/orlog
EXPOSE 7070
# Who reaches a container is decided outside of it, by what is published. Where that is more than you trust, set ORLOG_AUTH__MODE
# (docs/authentication.md).
ENV ORLOG_DATA=/var/lib/orlog ORLOG_LISTEN=0.0.0.0:7070 ORLOG_AUTH__OPEN=true
# No HEALTHCHECK: it would need an HTTP client in the image, and Kubernetes does not look at it. Ask /health and /ready from outside.
ENTRYPOINT ["/usr/local/bin/orlog"]
CMD ["run"]
