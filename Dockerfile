# A static binary in an image without a shell, run by a user without rights.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) -t steelyard .
#   docker run --rm -v $PWD/steelyard.yaml:/etc/steelyard/steelyard.yaml:ro steelyard
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -buildid= -X main.version=$VERSION" -o /steelyard ./cmd/steelyard

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /steelyard /steelyard
USER 65532:65532
ENTRYPOINT ["/steelyard"]
CMD ["serve", "--config", "/etc/steelyard/steelyard.yaml"]
