// Package inferencepool pins the module of the Gateway API Inference Extension
// for the tests, which install its CustomResourceDefinitions (config/crd/bases)
// in the API server. It is a module of its own, so that nothing of the extension
// gets into the product's go.mod.
package inferencepool

import _ "sigs.k8s.io/gateway-api-inference-extension/api/v1"
