# Builds the `orlog` binary and puts it alone into a small image.
FROM rust:1.95-bookworm AS builder
# bindgen reads the headers of libmdbx through libclang.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libclang-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN cargo build --release --locked -p orlog

FROM debian:bookworm-slim
# Effects speak to the world over TLS.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/orlog --create-home orlog
COPY --from=builder /build/target/release/orlog /usr/local/bin/orlog
COPY LICENSE /usr/share/doc/orlog/LICENSE
USER orlog
VOLUME /var/lib/orlog
EXPOSE 7070
ENTRYPOINT ["orlog"]
ENV ORLOG_DATA=/var/lib/orlog ORLOG_LISTEN=0.0.0.0:7070
CMD ["run"]
