package main

import (
	"testing"

	"steelyard/cmd/internal/picker"
)

func TestThePickerLooksForTheNameThatItIsGiven(t *testing.T) {
	o := picker.Options{Listen: "127.0.0.1:18002"}
	if err := (pickerTLS{serverName: "steelyard.internal"}).load(&o); err == nil {
		t.Error("a name without authorities, which are what turns TLS on, is accepted")
	}
	if err := (pickerTLS{caFile: "/ca", serverName: "steelyard.internal"}).load(&o); err != nil {
		t.Fatal(err)
	}
	if got := o.ClientTLS.ServerName; got != "steelyard.internal" {
		t.Errorf("it looks for %q", got)
	}
}
