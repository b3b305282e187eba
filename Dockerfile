# cellserver alone in an image: one static binary, no shell, not root. `make docker` builds it.

# The compiler runs on the builder's own architecture and compiles for the target's: nothing is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
# Modules change less often than the code, so they have their own layer.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o bin/cellserver ./cmd/cellserver && mkdir bin/data bin/names && \
    ln -s /cellserver bin/names/ratelimit && cp /etc/ssl/certs/ca-certificates.crt bin/

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="cellserver" \
      org.opencontainers.image.description="A rate-limit server that speaks the Redis protocol" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /src/bin/cellserver /cellserver
# The certificate authorities of Debian, for --store rediss:// and a control plane with TLS.
COPY --from=build /src/bin/ca-certificates.crt /etc/ssl/certs/
# By the name /bin/ratelimit, it takes the place of envoyproxy/ratelimit, with its environment: see docs/envoy.md.
COPY --from=build /src/bin/names /bin
# A place for --dir. A new volume that is mounted here gets the owner of this directory, so that the
# user below can write to it. It is no VOLUME: without --dir, which is the default, nothing is written.
COPY --from=build --chown=65532:65532 /src/bin/data /data

# A number, because there is no /etc/passwd to find a name in; Kubernetes' runAsNonRoot wants one too.
USER 65532:65532
EXPOSE 6379
STOPSIGNAL SIGTERM

# Nothing outside of a container can reach its loopback interface, so the image listens on all
# addresses, and protected mode, which would refuse all other peers, is off. As with Redis's image, the
# container's network decides which clients can connect.
# These defaults are ENV, not CMD: arguments after the image's name replace all of CMD, so with CMD
# `docker run cellserver --maxclients 100` would listen on loopback only. Flags override ENV.
ENV CELLSERVER_BIND="* -::*" \
    CELLSERVER_PROTECTED_MODE="no"
# To change the port, set CELLSERVER_PORT instead of --port: the health check reads only the variable.
# With --dir, the server does not answer PING until it has loaded its keys.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["/cellserver", "cli", "PING"]
ENTRYPOINT ["/cellserver"]
CMD []
