package modelsim

// Recording returns the metrics page of an engine as it was recorded under load, for
// servers that serve it in another way than a Server does.
func Recording(e Engine) string { return formatOf(e).recording }
