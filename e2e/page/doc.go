// Package page tests the dashboard in a real Chromium, against a real Steelyard with real Envoys and simulated model
// servers. It is a module of its own, so that the driver of the browser is no dependency of the product.
//
// Screenshots of each view stay in bin/page of the checkout, which git ignores: look at them after a change of the
// page.
package page
