// Package config reads the one YAML file of a control plane, checks it, and
// follows its changes.
package config
