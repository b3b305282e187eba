# cellserver alone in an image: one static binary, no shell, not root. `make docker` builds it.

# The compiler runs on the builder's own architecture and writes for the target's: nothing is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
# The modules change seldom, the code often: they are a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o bin/cellserver ./cmd/cellserver

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="cellserver" \
      org.opencontainers.image.description="A rate-limit server that speaks the Redis protocol" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /src/bin/cellserver /cellserver

# A number, because there is no /etc/passwd to find a name in; Kubernetes' runAsNonRoot wants one too.
USER 65532:65532
EXPOSE 6379
STOPSIGNAL SIGTERM

# Inside a container the loopback interface reaches nobody, so the image listens on all, and protected mode, which would
# refuse everybody from outside, is off: who may connect is for the container's network to say (as with Redis's image).
# These defaults are ENV, not CMD: arguments after the image's name replace CMD whole, so that with them there
# `docker run cellserver --maxclients 100` would listen on loopback only. A flag still has the last word over ENV.
ENV CELLSERVER_BIND="* -::*" \
    CELLSERVER_PROTECTED_MODE="no"
# To change the port, set CELLSERVER_PORT rather than --port: the health check sees the first, not the second.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/cellserver", "cli", "PING"]
ENTRYPOINT ["/cellserver"]
CMD []
