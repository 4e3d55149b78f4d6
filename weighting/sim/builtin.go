package sim

// Builtin returns a scenario by its name.
func Builtin(name string) (Scenario, bool) { return Scenario{}, false }

// Names lists the built-in scenarios.
func Names() []string { return nil }

// Policies are those of the standard table.
func Policies() []Policy { return nil }

// Matrix is every combination of service time, slots, load, speeds and shares of
// the Envoys in which least request must not win.
func Matrix() []Scenario { return nil }
