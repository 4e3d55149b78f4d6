#!/usr/bin/env bash
# Provides .tools/bin/epp, the endpoint picker of the Gateway API Inference Extension: the one that EPP names, else one
# that is built from the Go modules that e2e/bench/epp pins. That takes some minutes on two cores, and is done again
# only when that folder or the version of Go changes.
. "$(dirname "$0")/lib.sh"

built epp "the endpoint picker" e2e/bench/epp sigs.k8s.io/gateway-api-inference-extension cmd/epp
