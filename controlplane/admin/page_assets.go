package admin

import (
	"embed"
	"html/template"
)

var loginForm = template.Must(template.ParseFS(assets, "assets/login.html"))

//go:embed assets
var assets embed.FS
