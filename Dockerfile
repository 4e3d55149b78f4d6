# A static binary in an image without a shell, run by a user without rights. The binary is, bit for bit, the one in the
# archives of tools/release.sh for the same version and the same Go.
#
#   docker build --build-arg VERSION=0.1.0 -t steelyard:0.1.0 .
#   docker run --rm -v $PWD/steelyard.yaml:/etc/steelyard/steelyard.yaml:ro steelyard:0.1.0
#
# For both platforms, with the same bytes whenever it is built (BuildKit 0.13 or newer) on the same base. The tag of the
# base moves, so its digest has to be named, which `docker buildx imagetools inspect` prints:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=0.1.0 \
#     --build-arg BASE=gcr.io/distroless/static-debian12@sha256:... \
#     --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) \
#     --output type=image,name=REGISTRY/steelyard:0.1.0,push=true,rewrite-timestamp=true .
#
# `steelyard router` is another target, with Envoy and the module:
#
#   docker build --target router --build-arg VERSION=0.1.0 -t steelyard-router:0.1.0 .
#
# `make images` runs the steps below without a container engine, and both programs in the root file systems that they
# make, on Debian packages in place of the bases. No container engine has run this file, nor was it run for arm64.
ARG GO_VERSION=1.26.8
ARG BASE=gcr.io/distroless/static-debian12:nonroot
ARG ENVOY=envoyproxy/envoy:v1.40.0
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
ARG TARGETOS TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$VERSION" \
    -o /steelyard ./cmd/steelyard && \
    go run -C tools ./sbom "$VERSION" /THIRD_PARTY_NOTICES.txt /steelyard >/dev/null

# The module needs C, so it is built on its own platform. This stage's C library (2.36) is newer than that of Envoy's
# image (2.35, Ubuntu 22.04), and the module asks for nothing newer than 2.34, as `make images` checks.
FROM golang:${GO_VERSION}-bookworm AS module
COPY --from=build /src /src
WORKDIR /src
RUN CGO_ENABLED=1 go build -C envoy-module -buildmode=c-shared -trimpath -ldflags '-s -w' -o /libsteelyard.so .

FROM ${ENVOY} AS router
COPY --from=build /steelyard /usr/local/bin/steelyard
COPY --from=build /THIRD_PARTY_NOTICES.txt /usr/share/doc/steelyard/
COPY --from=module /libsteelyard.so /usr/local/bin/libsteelyard.so
USER 65532:65532
EXPOSE 3000
ENTRYPOINT ["steelyard"]
CMD ["router", "--host", "0.0.0.0"]

FROM ${BASE}
COPY --from=build /steelyard /THIRD_PARTY_NOTICES.txt /
USER 65532:65532
EXPOSE 18000 19000
ENTRYPOINT ["/steelyard"]
CMD ["serve", "--config", "/etc/steelyard/steelyard.yaml"]
