#!/usr/bin/env bash
# Provides .tools/bin/contour: the one that CONTOUR names, else one that is built from the Go modules that
# e2e/gateways/contour pins. That takes some three minutes on two cores, and is done again only when that folder or the
# version of Go changes.
. "$(dirname "$0")/lib.sh"

built contour "Contour" e2e/gateways/contour github.com/projectcontour/contour cmd/contour
