package config

import _ "embed"

//go:embed steelyard.schema.json
var schema []byte

// Schema is the JSON schema of a configuration, for editors. A test makes it of the structs in config.go, their tags
// and their comments; with -update it writes the file.
func Schema() []byte { return schema }
